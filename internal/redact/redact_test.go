package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const testKey = `-----BEGIN PRIVATE KEY-----
MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj
MzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDuictGeurT8jNbvJZHtCSuYEvu
N=
-----END PRIVATE KEY-----
`

func TestEncodings(t *testing.T) {
	secrets := map[string]string{
		"ascii":   "correct horse battery staple",
		"symbols": `p&s<s>w/r"d\+ü'~%41 !`,
		"short":   "abcdef",
		"binary":  "\x01\xfe\x80secret\x7f\n\x00\xff",
		"key":     testKey,
	}
	wrap := func(s string, width int) string {
		var lines []string
		for ; len(s) > width; s = s[width:] {
			lines = append(lines, s[:width])
		}
		return strings.Join(append(lines, s), "\n")
	}
	encodings := map[string]func(string) string{
		"plain":     func(s string) string { return s },
		"trimmed":   strings.TrimSpace,
		"query":     url.QueryEscape,
		"path":      url.PathEscape,
		"component": func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") },
		"user": func(s string) string {
			u := url.URL{Scheme: "https", Host: "example.com", User: url.UserPassword("git", s)}
			return u.String()
		},
		"lower escapes": func(s string) string { return lowerEscapes(url.QueryEscape(s)) },
		"JSON": func(s string) string {
			b, err := json.Marshal(map[string]string{"value": s})
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		},
		"Go":          strconv.Quote,
		"ASCII":       strconv.QuoteToASCII,
		"shell":       func(s string) string { return "+ echo '" + strings.ReplaceAll(s, "'", `'\''`) + "'" },
		"hex":         func(s string) string { return hex.EncodeToString([]byte(s)) },
		"HEX":         func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
		"base64":      func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"base64 url":  func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
		"base64 76":   func(s string) string { return wrap(base64.StdEncoding.EncodeToString([]byte(s)), 76) },
		"base64 64":   func(s string) string { return wrap(base64.StdEncoding.EncodeToString([]byte(s)), 64) },
		"terminal":    func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") },
		"basic auth":  func(s string) string { return base64.StdEncoding.EncodeToString([]byte("x:" + s)) },
		"base64 of 1": func(s string) string { return base64.StdEncoding.EncodeToString([]byte("x" + s + "yz")) },
		"base64 of 2": func(s string) string { return base64.URLEncoding.EncodeToString([]byte("xy" + s + "z")) },
		"base64 of 4": func(s string) string { return base64.URLEncoding.EncodeToString([]byte("xyzx" + s + "\n")) },
	}
	for name, secret := range secrets {
		set := New([]Secret{{name, secret}}...)
		for encName, enc := range encodings {
			encoded := enc(secret)
			got := mask(t, set, "before "+encoded+" after", []byte{0, 17, 3})
			if !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") || !strings.Contains(got, Marker) {
				t.Errorf("%s in %s: masked as %q", name, encName, got)
			}
			// The remainder can be characters of an encoding that represent neighbouring bytes,
			// even if they also represent bits of the secret.
			left := strings.TrimSuffix(strings.TrimPrefix(got, "before "), " after")
			for part := range strings.SplitSeq(left, Marker) {
				switch {
				case encName == "user" && (part == "https://git:" || part == "@example.com"):
				case encName == "JSON" && (part == `{"value":"` || part == `"}`):
				case encName == "shell" && part == "+ echo '":
				case strings.HasPrefix(encName, "base64 of") && len(part) == 6:
				case len(part) >= MinLength:
					t.Errorf("%s in %s: %q is left in %q", name, encName, part, got)
				}
			}
		}
	}
}

func TestLinesOfASecret(t *testing.T) {
	set := New([]Secret{{"key", testKey}, {"json", "{\n  \"id\": \"a b\",\n  \"n\": 1\n}"}}...)
	in := "  | MzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDuictGeurT8jNbvJZHtCSuYEvu |\nN= alone is too short\n" +
		`printed as \"id\": \"a b\", in JSON` + "\n"
	want := "  | [secret] |\nN= alone is too short\nprinted as [secret] in JSON\n"
	if diff := cmp.Diff(want, set.String(in)); diff != "" {
		t.Errorf("lines of a secret (-want +got):\n%s", diff)
	}
}

func TestSkipped(t *testing.T) {
	set := New([]Secret{{"EMPTY", ""}, {"SHORT", "abcde"}, {"BLANK", "        "}, {"PADDED", "  abcde\n"}, {"GOOD", "abcdef"}}...)
	add(t, set, Secret{"LATER", "x"}, Secret{"SHORT", "abcde"})
	if diff := cmp.Diff([]string{"BLANK", "LATER", "PADDED", "SHORT"}, set.Skipped()); diff != "" {
		t.Errorf("Skipped (-want +got):\n%s", diff)
	}
	if got := set.String("abcde abcdef        "); got != "abcde [secret]        " {
		t.Errorf("masked as %q", got)
	}
}

func TestHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := New([]Secret{{"two lines", "first line\nab\nlast line"}}...)
		var out lockedBuffer
		w := set.Writer(&out)
		expect := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got := out.String(); got != want {
				t.Errorf("%s: %q is out, want %q", when, got, want)
			}
		}
		write := func(s string) {
			t.Helper()
			if _, err := w.Write([]byte(s)); err != nil {
				t.Fatalf("Write: %v", err)
			}
		}
		write("hello\nfirst ")
		expect("part of a line", "hello\n")
		time.Sleep(time.Hour)
		expect("part of a line, long after", "hello\n")
		write("line\n")
		expect("a line of the secret", "hello\n")
		time.Sleep(40 * time.Millisecond)
		write("ab\n")
		time.Sleep(9 * time.Millisecond)
		expect("just before its time", "hello\n")
		time.Sleep(2 * time.Millisecond)
		expect("after its time", "hello\n[secret]\nab\n")
		write("last line\n")
		expect("the rest", "hello\n[secret]\nab\n[secret]\n")

		out.Reset()
		write("first line\nab\nla")
		write("st line and first li")
		expect("the whole secret", "[secret] and ")
		if err := w.Flush(); err != nil {
			t.Fatalf("Flush: %v", err)
		}
		expect("flushed part of a line", "[secret] and ")
		if err := w.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
		expect("cut off", "[secret] and [secret]")
		if _, err := w.Write([]byte("x")); err == nil {
			t.Error("a closed writer accepts text")
		}
	})
}

func TestAddWhileStreaming(t *testing.T) {
	set := New(nil...)
	var out bytes.Buffer
	w := set.Writer(&out)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				secret := fmt.Sprintf("token-%d-%d-end", i, j)
				add(t, set, Secret{Name: secret, Value: secret})
				if _, err := fmt.Fprintf(w, "have %s.\n", secret); err != nil {
					t.Errorf("Write: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if err := w.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if want := strings.Repeat("have [secret].\n", 160); out.String() != want {
		t.Errorf("a secret was written after it was added and not masked:\n%s", out.String())
	}
}

func TestAddAppliesToWhatIsHeldBack(t *testing.T) {
	set := New([]Secret{{"long", "0123456789-long"}}...)
	var out bytes.Buffer
	w := set.Writer(&out)
	for _, s := range []string{"0123456", "789 is new"} {
		if _, err := w.Write([]byte(s)); err != nil {
			t.Fatalf("Write: %v", err)
		}
		add(t, set, Secret{"short", "0123456789"})
	}
	if err := w.Close(); err != nil || out.String() != "[secret] is new" {
		t.Errorf("Close: %v, out %q", err, out.String())
	}
}

func add(t *testing.T, set *Set, secrets ...Secret) {
	t.Helper()
	if err := set.Add(t.Context(), secrets...); err != nil {
		t.Errorf("Add: %v", err)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lockedBuffer) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

func TestErrorOfTheDestinationStays(t *testing.T) {
	boom := errors.New("boom")
	w := New(nil...).Writer(failingWriter{boom})
	for range 2 {
		if n, err := w.Write([]byte("text")); n != 0 || !errors.Is(err, boom) {
			t.Errorf("Write = %d, %v", n, err)
		}
	}
	if err := w.Close(); !errors.Is(err, boom) {
		t.Errorf("Close: %v", err)
	}
}
