package layers

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPackageComments checks that every package, except those with only tests, has exactly one
// package comment that begins as godoc expects.
func TestPackageComments(t *testing.T) {
	for _, p := range ourPackages(t) {
		if len(p.GoFiles) == 0 {
			continue
		}
		var comments []string
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Errorf("parse %s: %v", path, err)
				continue
			}
			if file.Doc == nil || strings.HasSuffix(name, "_templ.go") {
				continue // templ writes its version where a package comment belongs
			}
			text := file.Doc.Text()
			if text == "" {
				continue // only directives such as //go:build
			}
			comments = append(comments, name)
			want := "Package " + p.Name + " "
			if p.Name == "main" {
				want = "Command " + filepath.Base(p.Dir) + " "
			}
			if !strings.HasPrefix(text, want) {
				t.Errorf("%s: the package comment begins with %q, want %q", path, firstWords(text), want)
			}
		}
		if len(comments) != 1 {
			t.Errorf("%s has %d package comments %v, want exactly one", p.ImportPath, len(comments), comments)
		}
	}
}

func firstWords(text string) string {
	words := strings.Fields(text)
	return strings.Join(words[:min(3, len(words))], " ")
}

// TestNoUnfinishedWork checks that no shipped source contains a note about unfinished work, which
// belongs in an issue.
func TestNoUnfinishedWork(t *testing.T) {
	note := regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`)
	files := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "dist") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files++
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(data), "\n") {
			if word := note.FindString(line); word != "" {
				t.Errorf("%s:%d: contains %s: do the work, or create an issue", path, i+1, word)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 10 {
		t.Errorf("checked only %d files", files)
	}
}
