package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
)

// TestConcurrentPackagesAreRaced reads the product. Packages that start goroutines, or synchronize them, must be
// checked with the race detector if they have tests.
func TestConcurrentPackagesAreRaced(t *testing.T) {
	tested, goes, found := map[string]bool{}, map[string]bool{}, map[string]bool{}
	root := filepath.Join("..", "..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "dev" || d.Name() == "testdata") {
			return errOrSkip(err)
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		name := product + "/" + filepath.ToSlash(dir)
		if strings.HasSuffix(path, "_test.go") {
			tested[name] = true
			text, err := os.ReadFile(path)
			found[name] = found[name] || strings.Contains(string(text), "func "+partly[name]+"(")
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if isConcurrent(file) {
			goes[name] = true
		}
		return nil
	})
	must.OK(t, err)
	raced := slices.Concat(racedOnBoth(), racedOnOne(), slices.Collect(maps.Keys(partly)), enginePackages, clusterPackages)
	for name := range goes {
		if short := strings.TrimPrefix(name, product+"/"); tested[name] && unraced[short] == "" && !slices.Contains(raced, name) {
			t.Errorf("the package %s has goroutines or locks, but no tier tests it with the race detector: add it to race.go", short)
		}
	}
	for name, test := range partly {
		if !found[name] {
			t.Errorf("the package %s has no test %s", name, test)
		}
	}
	for _, name := range slices.Concat(racedOnBoth(), racedOnOne()) {
		if !goes[name] || !tested[name] {
			t.Errorf("race.go lists %s, which has goroutines: %t, has tests: %t", name, goes[name], tested[name])
		}
	}
}

func errOrSkip(err error) error {
	if err != nil {
		return err
	}
	return fs.SkipDir
}

// isConcurrent reports whether a file starts goroutines, or synchronizes them.
func isConcurrent(file *ast.File) (found bool) {
	for _, spec := range file.Imports {
		if path := strings.Trim(spec.Path.Value, `"`); path == "sync" || path == "sync/atomic" || path == "golang.org/x/sync/errgroup" {
			return true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		_, is := n.(*ast.GoStmt)
		found = found || is
		return !found
	})
	return found
}

func TestWhatUsesPostgres(t *testing.T) {
	s := &suite{root: filepath.Join("..", "..", "..", "..")}
	for name, want := range map[string]bool{"server/stacks": true, "server/webhooks": true, "server/budget": false, "agent": false} {
		if got := s.usesPostgres(product + "/" + name); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}
