package console

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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

var (
	styledClass = regexp.MustCompile(`\.(-?[a-zA-Z_][a-zA-Z0-9_-]*)`)
	plainClass  = regexp.MustCompile(`class(?:Name)?[=:] ?"([^"]*)"`)
	madeClass   = regexp.MustCompile(`class=\{([^}]*)\}|className [+]?= (.*);|classList\.\w+\((.*)\)`)
	quotedText  = regexp.MustCompile("[\"`]([^\"`]*)[\"`]")
)

// withoutStyle are classes that only scripts and tests look for.
var withoutStyle = []string{"tree-options"}

// TestClasses checks that the style sheets know every class of the pages and scripts. A class that they do not know is a
// component under another name than in the drawings, or a typing error.
func TestClasses(t *testing.T) {
	known := map[string]bool{}
	for _, name := range withoutStyle {
		known[name] = true
	}
	files, err := filepath.Glob(filepath.Join(assets, "css", "*.css"))
	if err != nil || len(files) == 0 {
		t.Fatalf("finding the styles: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range styledClass.FindAllStringSubmatch(string(text), -1) {
			known[m[1]] = true
		}
	}
	check := func(file, names string) {
		for _, name := range strings.Fields(names) {
			begins := strings.HasSuffix(name, "-") && slices.ContainsFunc(slices.Collect(maps.Keys(known)), func(k string) bool { return strings.HasPrefix(k, name) })
			if !known[name] && !begins {
				t.Errorf("%s uses the class %s, which no style sheet knows", filepath.Base(file), name)
			}
		}
	}
	for _, root := range []string{pages, filepath.Join(assets, "js")} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".templ" && filepath.Ext(path) != ".js" || strings.Contains(path, "vendor") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range plainClass.FindAllStringSubmatch(string(text), -1) {
				check(path, m[1])
			}
			for _, m := range madeClass.FindAllStringSubmatch(string(text), -1) {
				for _, q := range quotedText.FindAllStringSubmatch(m[1]+m[2]+m[3], -1) {
					check(path, regexp.MustCompile(`\$\{[^}]*\}`).ReplaceAllString(q[1], ""))
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
