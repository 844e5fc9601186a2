package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/publicapi"
	"workflowagent/internal/server/api/absent"
)

func TestGeneratedFilesAreCurrent(t *testing.T) {
	for name, content := range map[string]func() ([]byte, error){file: page, specFile: spec} {
		want := must.Get(content())(t)
		got := must.Get(os.ReadFile(filepath.Join("..", "..", "..", name)))(t)
		if string(got) != string(want) {
			t.Errorf("%s differs from the server's routes: run make generate", name)
		}
	}
}

// described returns the operations of a description of the public API, which lies outside the
// repository.
func described(t *testing.T, name string) []publicapi.Operation {
	t.Helper()
	path := filepath.Join("..", "..", "..", "..", "shared", "reference", name)
	if env := os.Getenv("WORKFLOW_OPENAPI"); env != "" {
		path = filepath.Join(filepath.Dir(env), name)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Skipf("the description of the public API is missing: %v", err)
	}
	var doc struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	must.OK(t, json.Unmarshal(data, &doc))
	var all []publicapi.Operation
	for path, methods := range doc.Paths {
		for method, op := range methods {
			all = append(all, publicapi.Operation{Method: strings.ToUpper(method), Path: path, ID: op.OperationID})
		}
	}
	slices.SortFunc(all, func(a, b publicapi.Operation) int {
		return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method)
	})
	return all
}

func TestOperationsAreThoseOfThePublicAPI(t *testing.T) {
	want := described(t, "pulumi-openapi.json")
	if got := publicapi.Operations(); !slices.Equal(got, want) {
		t.Errorf("operations.txt lists %d operations, which differ from the %d of the public API", len(got), len(want))
	}
}

func TestFurtherOperationsAreBuiltOrAbsent(t *testing.T) {
	routes := must.Get(routesOfServer())(t)
	has := func(method, path string) bool {
		return slices.ContainsFunc(routes, func(r route) bool { return publicapi.Shape(r.method, r.path) == publicapi.Shape(method, path) })
	}
	// The server has one route for each provider.
	providers := []string{"custom", "github", "github-enterprise", "gitlab", "bitbucket", "azure-devops"}
	for _, op := range described(t, "pulumi-openapi-more.json") {
		built := has(op.Method, op.Path) || strings.Contains(op.Path, "{provider}") && !slices.ContainsFunc(providers, func(name string) bool {
			return !has(op.Method, strings.ReplaceAll(op.Path, "{provider}", name))
		})
		if _, ok := absent.Match(op.Method, op.Path); !ok && !built && op.Method != http.MethodOptions {
			t.Errorf("%s %s is neither a route nor a part of an absent feature", op.Method, op.Path)
		}
	}
}
