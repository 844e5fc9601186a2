package console

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

const pages = "../../../server/console"

// forbidden are the parts of templates that the content security policy blocks, or that templ turns
// into scripts between tags.
var forbidden = []struct {
	what  string
	match *regexp.Regexp
}{
	{"an inline style", regexp.MustCompile(`(?i)\sstyle\s*\??=|<style[\s>]`)},
	{"an inline script", regexp.MustCompile(`(?i)<script[^>]*>\s*[^<\s]`)},
	{"a handler in an attribute", regexp.MustCompile(`(?i)\son[a-z]+\s*\??=\s*["{]`)},
	{"an address that is a script", regexp.MustCompile(`(?i)["']javascript:`)},
	{"a script of templ", regexp.MustCompile(`(?m)^script\s|templ\.(JSFuncCall|JSUnsafeFuncCall|ComponentScript|JSONScript|OnceHandle|NewOnceHandle)`)},
	{"text that is not escaped", regexp.MustCompile(`templ\.Raw\(`)},
}

func TestForbidden(t *testing.T) {
	cases := map[string]string{
		`<p style="x">`:                         "an inline style",
		`<p style={ s }>`:                       "an inline style",
		`<p style?={ s }>`:                      "an inline style",
		`<style>p{}</style>`:                    "an inline style",
		`<script>alert(1)</script>`:             "an inline script",
		`<script src="/x.js"></script>`:         "",
		`<button onclick="x()">`:                "a handler in an attribute",
		`<button onClick={ x }>`:                "a handler in an attribute",
		`<a href="javascript:x()">`:             "an address that is a script",
		"script greet(name string) {\n":         "a script of templ",
		`@templ.Raw(text)`:                      "text that is not escaped",
		`<p class="styled" data-on-click="no">`: "",
	}
	for text, want := range cases {
		if got := refused(text); got != want {
			t.Errorf("%q: refused as %q, want %q", text, got, want)
		}
	}
}

func refused(text string) string {
	for _, f := range forbidden {
		if f.match.MatchString(text) {
			return f.what
		}
	}
	return ""
}

func TestTemplates(t *testing.T) {
	count := 0
	err := filepath.WalkDir(pages, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".templ" {
			return err
		}
		count++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if what := refused(string(text)); what != "" {
			t.Errorf("%s contains %s, which the content security policy blocks or which is not safe", path, what)
		}
		return nil
	})
	if err != nil || count == 0 {
		t.Fatalf("reading the templates: %v, %d files", err, count)
	}
}
