package layers

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"workflowagent/internal/dev/must"
)

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+?) *$`)
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
)

// TestLinks checks that every relative link of a page leads to a file, and its fragment to a heading. Each page of docs
// must be linked.
func TestLinks(t *testing.T) {
	t.Parallel()
	anchors, links := map[string]map[string]bool{}, 0
	linked := map[string]bool{}
	for _, page := range pages(t) {
		text := fence.ReplaceAllString(string(must.Get(os.ReadFile(page))(t)), "")
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			target, err := url.Parse(match[1])
			if err != nil || target.Scheme != "" {
				continue
			}
			links++
			file := page
			if target.Path != "" {
				file = filepath.Join(filepath.Dir(page), filepath.FromSlash(target.Path))
			}
			linked[file] = linked[file] || file != page
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, match[1])
				continue
			}
			if target.Fragment == "" {
				continue
			}
			if anchors[file] == nil {
				anchors[file] = anchorsOf(string(must.Get(os.ReadFile(file))(t)))
			}
			if !anchors[file][target.Fragment] {
				t.Errorf("%s links to %s, which has no such heading", page, match[1])
			}
		}
	}
	for _, page := range must.Get(filepath.Glob(filepath.Join(root, "docs", "*.md")))(t) {
		if !linked[page] {
			t.Errorf("no page links to %s", page)
		}
	}
	if links < 100 {
		t.Errorf("found only %d links: the pattern of this test is wrong", links)
	}
}

// pages returns the paths of all pages of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	var found []string
	must.OK(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (name == ".git" || name == "bin" || name == "dist" || name == "data" || name == "node_modules" || name == "testdata"):
			return filepath.SkipDir
		case strings.HasSuffix(name, ".md"):
			found = append(found, path)
		}
		return nil
	}))
	return found
}

// anchorsOf returns the fragments under which GitHub and GitLab show the headings of a page.
func anchorsOf(text string) map[string]bool {
	found := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		words := link.ReplaceAllString(strings.ToLower(match[1]), "")
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return r
			}
			return -1
		}, words)
		name := slug
		for n := 1; found[name]; n++ {
			name = slug + "-" + strconv.Itoa(n)
		}
		found[name] = true
	}
	return found
}
