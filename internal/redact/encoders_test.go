package redact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// specials are the characters that encoders treat differently.
const specials = " !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~üé€😀\u00a0\t\x1b\x7f"

func randomSecrets(seed uint64, n int) []string {
	rnd := rand.New(rand.NewPCG(seed, 0))
	pool := []rune(specials)
	secrets := make([]string, n)
	for i := range secrets {
		var b strings.Builder
		for range 6 + rnd.IntN(14) {
			if rnd.IntN(3) == 0 {
				b.WriteRune(pool[rnd.IntN(len(pool))])
			} else {
				b.WriteByte(byte('a' + rnd.IntN(26)))
			}
		}
		secrets[i] = "x" + b.String() + "y" // no tool trims these end characters
	}
	return secrets
}

// checkMasked fails the test if anything except quotes remains of an encoded secret.
func checkMasked(t *testing.T, encoder, secret, encoded string) {
	t.Helper()
	set := New([]Secret{{"s", secret}}...)
	got := set.String("before " + encoded + " after")
	left := strings.TrimSuffix(strings.TrimPrefix(got, "before "), " after")
	quotes := strings.Trim(strings.NewReplacer(Marker, "", "%3D", "").Replace(left), "$b\"'`\\=")
	if !strings.Contains(left, Marker) || quotes != "" {
		t.Errorf("%s writes %q as %q, which is masked as %q", encoder, secret, encoded, got)
	}
}

// TestSecretsInEveryForm checks that the recorded output of each tool for one secret is masked.
func TestSecretsInEveryForm(t *testing.T) {
	const secret = "p+w!'()*~/\"<>&$`\\ ü;=#,x"
	for encoder, encoded := range map[string]string{
		"JavaScript encodeURIComponent": `p%2Bw!'()*~%2F%22%3C%3E%26%24%60%5C%20%C3%BC%3B%3D%23%2Cx`,
		"JavaScript encodeURI":          `p+w!'()*~/%22%3C%3E&$%60%5C%20%C3%BC;=#,x`,
		"JavaScript URLSearchParams":    `p%2Bw%21%27%28%29*%7E%2F%22%3C%3E%26%24%60%5C+%C3%BC%3B%3D%23%2Cx`,
		"JavaScript JSON.stringify":     `"p+w!'()*~/\"<>&$` + "`" + `\\ ü;=#,x"`,
		"Python quote":                  `p%2Bw%21%27%28%29%2A~/%22%3C%3E%26%24%60%5C%20%C3%BC%3B%3D%23%2Cx`,
		"lower case percent":            `p%2bw%21%27%28%29%2a~%2f%22%3c%3e%26%24%60%5c%20%c3%bc%3b%3d%23%2cx`,
		"percent twice":                 `p%252Bw%2521%2527%2528%2529%252A~%252F%2522%253C%253E%2526%2524%2560%255C%2520%25C3%25BC%253B%253D%2523%252Cx`,
		".NET System.Text.Json":         `"p\u002Bw!\u0027()*~/\u0022\u003C\u003E\u0026$\u0060\\ \u00FC;=#,x"`,
		"PHP json_encode":               `"p+w!'()*~\/\"<>&$` + "`" + `\\ \u00fc;=#,x"`,
		"JSON with escaped slashes":     `"p+w!'()*~\/\"<>&$` + "`" + `\\ ü;=#,x"`,
		"Python json":                   `"p+w!'()*~/\"<>&$` + "`" + `\\ \u00fc;=#,x"`,
		"Gson":                          `"p+w!\u0027()*~/\"\u003c\u003e\u0026$` + "`" + `\\ ü;\u003d#,x"`,
		"JSON in JSON":                  `"\"p+w!'()*~/\\\"<>&$` + "`" + `\\\\ ü;=#,x\""`,
		"Python repr":                   `'p+w!\'()*~/"<>&$` + "`" + `\\ ü;=#,x'`,
		"Python bytes":                  `b'p+w!\'()*~/"<>&$` + "`" + `\\ \xc3\xbc;=#,x'`,
		"bash printf %q":                `p+w\!\'\(\)\*~/\"\<\>\&\$\` + "`" + `\\\ ü\;=#\,x`,
		"bash in the C locale":          `$'p+w!\'()*~/"<>&$` + "`" + `\\ \303\274;=#,x'`,
		"bash set -x":                   `'p+w!'\''()*~/"<>&$` + "`" + `\ ü;=#,x'`,
		"Python shlex":                  `'p+w!'"'"'()*~/"<>&$` + "`" + `\ ü;=#,x'`,
		"XML text":                      "p+w!'()*~/\"&lt;&gt;&amp;$`\\ ü;=#,x",
		"Go xml":                        "p+w!&#39;()*~/&#34;&lt;&gt;&amp;$`\\ ü;=#,x",
		"Python html":                   "p+w!&#x27;()*~/&quot;&lt;&gt;&amp;$`\\ ü;=#,x",
		"XML attribute":                 "p+w!&apos;()*~/&quot;&lt;&gt;&amp;$`\\ ü;=#,x",
		".NET HtmlEncoder":              "p&#x2B;w!&#x27;()*~/&quot;&lt;&gt;&amp;$&#x60;\\ &#xFC;;=#,x",
		"PowerShell":                    "'p+w!''()*~/\"<>&$`\\ ü;=#,x'",
		"PowerShell double quotes":      "\"p+w!'()*~/`\"<>&`$``\\ ü;=#,x\"",
		"YAML":                          `"p+w!'()*~/\"<>&$` + "`" + `\\ \xFC;=#,x"`,
		"CSV":                           "\"p+w!'()*~/\"\"<>&$`\\ ü;=#,x\"",
		"base64 of base64":              "Y0N0M0lTY29LU3ArTHlJOFBpWWtZRndndzd3N1BTTXNlQT09",
	} {
		checkMasked(t, encoder, secret, encoded)
	}
	for encoder, encode := range goEncoders {
		for _, s := range randomSecrets(1, 60) {
			checkMasked(t, encoder, s, encode(s))
		}
	}
}

var goEncoders = map[string]func(string) string{
	"url.QueryEscape": url.QueryEscape,
	"url.PathEscape":  url.PathEscape,
	"html":            html.EscapeString,
	"html/template":   template.HTMLEscapeString,
	"strconv":         strconv.Quote,
	"strconv ASCII":   strconv.QuoteToASCII,
	"JSON": func(s string) string {
		b, _ := json.Marshal(s) // encoding a string never fails
		return string(b)
	},
	"JSON of a log line": func(s string) string {
		b, _ := json.Marshal(s)
		b, _ = json.Marshal(string(b))
		return string(b)
	},
}

func TestFormsAreBounded(t *testing.T) {
	plain := New([]Secret{{"plain", "Q7rT0aGk2LmX9vBn4cYd"}}...)
	if n := len(plain.needlesForTest()); n > 16 {
		t.Errorf("a secret of letters and digits has %d forms, at most 16 are expected", n)
	}
	worst := New([]Secret{{"worst", specials + "\nsecond " + specials}}...)
	if n := len(worst.needlesForTest()); n > 450 {
		t.Errorf("a secret of special characters in two lines has %d forms, at most 450 are expected", n)
	}
	var size int
	for _, needle := range New([]Secret{{"long", strings.Repeat(specials, maxBytes/len(specials))}}...).needlesForTest() {
		size += len(needle)
	}
	if size > 16<<20 {
		t.Errorf("the forms of a secret of %d bytes take %d bytes", maxBytes, size)
	}
}

// encoderSeed returns a fixed seed, or a new one if requested.
func encoderSeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("WORKFLOW_FUZZ_SEED")
	if text == "" {
		return 7
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("WORKFLOW_FUZZ_SEED: %v", err)
	}
	return seed
}

// These scripts read a JSON list of secrets and print the output of each encoder for each secret.
const (
	nodeScript = `const s = JSON.parse(require("fs").readFileSync(0)), util = require("util");
const e = {encodeURIComponent, encodeURI, json: JSON.stringify, inspect: x => util.inspect(x), jsonTwice: x => JSON.stringify(JSON.stringify(x)),
 params: x => new URLSearchParams({v: x}).toString().slice(2), base64: x => Buffer.from(x).toString("base64"), base64url: x => Buffer.from(x).toString("base64url"),
 hex: x => Buffer.from(x).toString("hex"), twice: x => encodeURIComponent(encodeURIComponent(x)), inURL: x => encodeURIComponent(Buffer.from(x).toString("base64"))};
console.log(JSON.stringify(s.map(x => Object.fromEntries(Object.entries(e).map(([n, f]) => [n, f(x)])))));`

	pythonScript = `import json, sys, html, shlex, base64
from urllib.parse import quote, quote_plus, urlencode
from xml.sax.saxutils import escape, quoteattr
e = dict(quote=quote, quote_plus=quote_plus, unsafe=lambda s: quote(s, safe=""), urlencode=lambda s: urlencode({"v": s})[2:], repr=repr, ascii=ascii,
 json=json.dumps, jsonUnicode=lambda s: json.dumps(s, ensure_ascii=False), jsonTwice=lambda s: json.dumps(json.dumps(s, ensure_ascii=False), ensure_ascii=False),
 html=html.escape, shlex=shlex.quote, xml=escape, quoteattr=quoteattr, bytes=lambda s: repr(s.encode()),
 xmlcharref=lambda s: html.escape(s).encode("ascii", "xmlcharrefreplace").decode(), base64=lambda s: base64.b64encode(s.encode()).decode(),
 twice=lambda s: base64.b64encode(base64.b64encode(s.encode())).decode(), hex=lambda s: s.encode().hex())
print(json.dumps([{n: f(s) for n, f in e.items()} for s in json.load(sys.stdin)]))`
)

func TestRealEncodersInScripts(t *testing.T) {
	for _, tool := range []struct{ program, flag, script string }{{"node", "-e", nodeScript}, {"python3", "-c", pythonScript}} {
		t.Run(tool.program, func(t *testing.T) {
			if _, err := exec.LookPath(tool.program); err != nil {
				t.Skipf("%s is not installed", tool.program)
			}
			secrets := randomSecrets(encoderSeed(t), 120)
			in, err := json.Marshal(secrets)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), tool.program, tool.flag, tool.script)
			cmd.Stdin = bytes.NewReader(in)
			cmd.Env = append(os.Environ(), "PYTHONIOENCODING=utf-8")
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s: %v", tool.program, err)
			}
			var results []map[string]string
			if err := json.Unmarshal(out, &results); err != nil || len(results) != len(secrets) {
				t.Fatalf("%d results for %d secrets, %v", len(results), len(secrets), err)
			}
			for i, secret := range secrets {
				for encoder, encoded := range results[i] {
					checkMasked(t, tool.program+"'s "+encoder, secret, encoded)
				}
			}
		})
	}
}

func TestRealEncodersOfBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	secrets := randomSecrets(encoderSeed(t), 120)
	const script = `while IFS= read -r -d '' s; do printf '%q\0%s\0' "$s" "${s@Q}"; done`
	for _, locale := range []string{"C", "C.UTF-8"} {
		cmd := exec.CommandContext(t.Context(), bash, "-c", script)
		cmd.Stdin = strings.NewReader(strings.Join(secrets, "\x00") + "\x00")
		cmd.Env = append(os.Environ(), "LC_ALL="+locale)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("bash: %v", err)
		}
		results := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		if len(results) != 2*len(secrets) {
			t.Fatalf("%d results for %d secrets", len(results), len(secrets))
		}
		for i, secret := range secrets {
			checkMasked(t, fmt.Sprintf("bash's %%q in %s", locale), secret, results[2*i])
			checkMasked(t, fmt.Sprintf("bash's @Q in %s", locale), secret, results[2*i+1])
		}
	}
}

func FuzzGoEncoders(f *testing.F) {
	for _, secret := range randomSecrets(3, 8) {
		f.Add(secret)
	}
	f.Fuzz(func(t *testing.T, secret string) {
		if len(secret) > 200 || !utf8.ValidString(secret) || strings.TrimSpace(secret) != secret || len(secret) < MinLength ||
			strings.ContainsAny(secret, Marker+"\x00\r\n") {
			t.Skip("not a secret of one line")
		}
		for encoder, encode := range goEncoders {
			checkMasked(t, encoder, secret, encode(secret))
		}
	})
}
