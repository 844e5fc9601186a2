package api_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"workflowagent/internal/dev/publicapi"
	"workflowagent/internal/server/api/absent"
	"workflowagent/internal/server/api/openapi"
)

// TestDescriptionListsEveryRoute compares the description for clients with the router.
func TestDescriptionListsEveryRoute(t *testing.T) {
	f := newFixture(t, options{})
	a := f.send(call{Method: "GET", Path: openapi.Path, Auth: "none"}).want(200, nil)
	doc, err := openapi3.NewLoader().LoadFromData(a.Body)
	if err == nil {
		err = doc.Validate(t.Context())
	}
	if err != nil {
		t.Fatalf("the description is invalid: %v", err)
	}
	var want, got []string
	for _, route := range f.routes() {
		if method, path, _ := strings.Cut(route, " "); strings.HasPrefix(path, "/api/") {
			want = append(want, publicapi.Shape(method, path))
		}
	}
	ids := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			got = append(got, publicapi.Shape(method, path))
			if op.Summary == "" || ids[op.OperationID] {
				t.Errorf("%s %s: summary %q, operationId %q, want a summary and a unique operationId", method, path, op.Summary, op.OperationID)
			}
			ids[op.OperationID] = true
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("described:\n%s\nroutes:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestAbsentFeaturesAnswerForThemselves checks that each operation of the public API is either a
// route or absent with its own sentence, and that no absent feature hides a route.
func TestAbsentFeaturesAnswerForThemselves(t *testing.T) {
	f := newFixture(t, options{})
	routes := map[string]bool{}
	for _, route := range f.routes() {
		method, path, _ := strings.Cut(route, " ")
		routes[publicapi.Shape(method, path)] = true
		if feature, ok := absent.Match(method, path); ok {
			t.Errorf("%s belongs to the absent feature %q: remove it from the list in package absent", route, feature.Path)
		}
	}
	for _, op := range publicapi.Operations() {
		feature, ok := absent.Match(op.Method, op.Path)
		if ok == routes[publicapi.Shape(op.Method, op.Path)] {
			t.Errorf("%s %s: absent %v, a route %v, want one of them", op.Method, op.Path, ok, !ok)
		}
		if ok {
			f.send(call{Method: op.Method, Path: op.Path}).want(404, nil).says("does not offer " + feature.What)
		}
	}
	f.do("GET", "/api/nowhere", nil).want(404, nil).says("does not exist on this server")
	f.do("GET", "/api/stacks/acme/proj/annotations", nil).want(404, nil).says("annotations")
	for _, list := range []string{"roles", "invites"} {
		f.do("GET", "/api/orgs/acme/"+list, nil).want(200, nil).says(`"` + list + `":[]`)
	}
	for _, feature := range absent.Features() {
		method, path, limited := strings.Cut(feature.Path, " ")
		if !limited {
			method, path = "GET", feature.Path
		}
		if _, ok := absent.Match(method, path); ok != (feature.What != "") {
			t.Errorf("another feature in front of %s hides it", feature.Path)
		} else if ok {
			f.send(call{Method: method, Path: path, Auth: "none"}).want(404, nil).says("does not offer " + feature.What)
		}
	}
}
