package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
)

func fold(text string, width int, end string) string {
	var out strings.Builder
	for ; len(text) > width; text = text[width:] {
		out.WriteString(text[:width] + end)
	}
	return out.String() + text + end
}

// TestWrappedEncodings prints a secret in lines, as tools do, in one write and in many.
func TestWrappedEncodings(t *testing.T) {
	token := ""
	for i := range 93 {
		token += string(plainLetters[(i*i+7*i)%len(plainLetters)])
	}
	set := New(Secret{"token", token}, Secret{"key", testKey})
	texts := map[string]string{}
	for name, secret := range map[string]string{"token": token, "key": testKey} {
		for _, before := range []string{"", "u", "us", "user:", strings.Repeat("some file\n", 30)} {
			encoded := base64.StdEncoding.EncodeToString([]byte(before + secret + "\nand more\n"))
			for _, width := range []int{60, 64, 76, 80} {
				texts[fmt.Sprintf("base64 of %s after %d bytes, %d columns", name, len(before), width)] = fold(encoded, width, "\n")
			}
		}
		for _, width := range []int{7, 20, 60, 80} {
			texts[fmt.Sprintf("hex of %s, %d columns", name, width)] = fold(hex.EncodeToString([]byte(secret)), width, "\n")
			texts[fmt.Sprintf("%s, %d columns", name, width)] = fold(stripBreaks(secret), width, "\r\n")
		}
	}
	for name, text := range texts {
		for _, cuts := range [][]byte{nil, {0}, {75, 2}} {
			got := mask(t, set, "first line\n"+text+"last line\n", cuts)
			left := strings.ReplaceAll(stripBreaks(got), Marker, "")
			for _, secret := range []string{token, stripBreaks(testKey)} {
				for _, form := range append(base64Forms(secret), secret, hex.EncodeToString([]byte(secret))) {
					for at := 0; at+12 <= len(form); at++ {
						if strings.Contains(left, form[at:at+12]) && !strings.HasPrefix(form[at:], "-----") {
							t.Fatalf("%s, cuts %v: %q is left in %q", name, cuts, form[at:at+12], got)
						}
					}
				}
			}
			if !strings.HasPrefix(got, "first line\n") || !strings.HasSuffix(got, "last line\n") {
				t.Errorf("%s, cuts %v: the rest of the log changed: %q", name, cuts, got)
			}
		}
	}
}

// TestWrappedByRealTools uses the tools of the machine.
func TestWrappedByRealTools(t *testing.T) {
	token := strings.Repeat("tok3n-Value.", 8)[:93]
	set := New(Secret{"token", token})
	for _, command := range []string{
		`printf %s "user:$TOKEN" | base64`,
		`printf "some text %s" "$TOKEN" | base64 -w 40`,
		`printf %s "$TOKEN" | xxd -p`,
		`printf %s "a prefix of many bytes in a line $TOKEN" | fold -w 80`,
		`printf %s "$TOKEN" | od -An -v -tx1 | tr -d " "`,
	} {
		tool := strings.Fields(command[strings.LastIndex(command[:strings.Index(command+" -", " -")], "| ")+2:])[0]
		if _, err := exec.LookPath(tool); err != nil {
			t.Logf("skipped, because %s is missing: %s", tool, command)
			continue
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
		cmd.Env = append(cmd.Environ(), "TOKEN="+token)
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%s: %v", command, err)
			continue
		}
		got := mask(t, set, string(out), []byte{3})
		if !strings.Contains(got, Marker) || len(got) > 60 {
			t.Errorf("%s: printed %q, masked as %q", command, out, got)
		}
	}
}

// TestHeldLinesAreBounded writes line breaks within what can be a secret.
func TestHeldLinesAreBounded(t *testing.T) { synctest.Test(t, testHeldLines) }

func testHeldLines(t *testing.T) {
	set := New(Secret{"a", "hunter22"})
	var out bytes.Buffer
	w := set.Writer(&out)
	if _, err := w.Write([]byte("hunt")); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := w.Write(bytes.Repeat([]byte("\n"), 1000)); err != nil {
			t.Fatal(err)
		}
		if len(w.held) > maxHeld+1000 {
			t.Fatalf("%d bytes are held back", len(w.held))
		}
	}
	if err := w.Close(); err != nil || !strings.HasPrefix(out.String(), "hunt\n") {
		t.Errorf("Close: %v, out %.20q", err, out.String())
	}
}

// TestLinesStayWhole scans lines whose ends can be the beginning of a secret. What reads the output line
// by line, for example to find errors or colours, must get such a line as a whole.
func TestLinesStayWhole(t *testing.T) {
	m := New(Secret{Name: "A", Value: "m-is-the-beginning"}, Secret{Name: "B", Value: "e-begins-too"}).matcher.Load()
	for text, want := range map[string]string{
		"\x1b[31mred\x1b[0m\n":          "\x1b[31mred\x1b[0m\n",
		"a\n\x1b[31mm\x1b[0m\n":         "a\n",
		"first\nerror: the last line\n": "first\n",
		"first\nline!\nlast!\n":         "first\nline!\nlast!\n",
		"line\nline\nsame\n":            "line\nline\n",
		"prompt: e":                     "prompt: ",
	} {
		var sc scanner
		masked, hold := sc.scan(m, []byte(text), moreToCome)
		if string(masked) != want || text[:hold] != want {
			t.Errorf("%q: the output is %q and %q is held, want %q", text, masked, text[hold:], want)
		}
	}
	var sc scanner
	long := strings.Repeat("x", 2*maxHeld) + "e\n"
	if masked, _ := sc.scan(m, []byte(long), moreToCome); len(masked) < 2*maxHeld {
		t.Errorf("of a long line, %d bytes are written", len(masked))
	}
}
