package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
)

// TestNoStatusInMessages checks that no message of the control plane begins with the words of an HTTP
// status. The API's package web adds them to the messages for clients.
func TestNoStatusInMessages(t *testing.T) {
	var words []string
	for code := range 600 {
		if text := http.StatusText(code); code >= 400 && text != "" {
			words = append(words, text+": ")
		}
	}
	read := 0
	err := filepath.WalkDir(filepath.Join(root, "internal/server"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		read++
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text := must.Get(strconv.Unquote(literal.Value))(t)
			for _, w := range words {
				if strings.HasPrefix(text, w) {
					t.Errorf("%s: remove %q: the API adds the words of the status to messages", set.Position(literal.Pos()), w)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || read == 0 {
		t.Fatalf("read %d files: %v", read, err)
	}
}
