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
	"workflowagent/internal/server/api/absent"
	"workflowagent/internal/server/api/openapi"
)

func TestGeneratedPageIsCurrent(t *testing.T) {
	want := must.Get(page())(t)
	got := must.Get(os.ReadFile(filepath.Join("..", "..", "..", file)))(t)
	if string(got) != string(want) {
		t.Errorf("%s differs from the server's routes: run make generate", file)
	}
}

// described returns the operations of a description of the public API, which lies outside the
// repository.
func described(t *testing.T, name string) []openapi.Operation {
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
	var all []openapi.Operation
	for path, methods := range doc.Paths {
		for method, op := range methods {
			all = append(all, openapi.Operation{Method: strings.ToUpper(method), Path: path, ID: op.OperationID})
		}
	}
	slices.SortFunc(all, func(a, b openapi.Operation) int {
		return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method)
	})
	return all
}

func TestOperationsAreThoseOfThePublicAPI(t *testing.T) {
	want := described(t, "pulumi-openapi.json")
	if got := openapi.Operations(); !slices.Equal(got, want) {
		t.Errorf("operations.txt lists %d operations, which differ from the %d of the public API", len(got), len(want))
	}
}

func TestFurtherOperationsAreBuiltOrAbsent(t *testing.T) {
	routes := must.Get(routesOfServer())(t)
	has := func(method, path string) bool {
		return slices.ContainsFunc(routes, func(r route) bool { return openapi.Shape(r.method, r.path) == openapi.Shape(method, path) })
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
