package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

// referring returns a state with StackReferences to stacks.
func referring(names ...string) map[string]any {
	list := []any{}
	for _, name := range names {
		list = append(list, map[string]any{
			"urn": "urn:pulumi:dev::proj::pulumi:pulumi:StackReference::" + name, "type": "pulumi:pulumi:StackReference",
			"custom": true, "id": name, "external": true, "inputs": map[string]any{"name": name},
		})
	}
	return map[string]any{"version": 3, "deployment": map[string]any{"resources": list}}
}

// references returns the names of the stacks in a list of references.
func (f *fixture) references(auth, path string) []string {
	f.t.Helper()
	var body struct {
		ReferencedStacks []struct {
			Organization, RoutingProject, Name string
			Version                            int
		}
	}
	f.send(call{Method: "GET", Path: path, Auth: auth}).want(200, &body)
	names := []string{}
	for _, s := range body.ReferencedStacks {
		names = append(names, fmt.Sprintf("%s/%s/%s@%d", s.Organization, s.RoutingProject, s.Name, s.Version))
	}
	return names
}

func TestReferencesBetweenStacks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		base, app, other := f.stack("base"), f.stack("app"), f.stack("other")
		check := func(auth, path string, want ...string) {
			t.Helper()
			if err := f.stacks.ReadReferences(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := f.references(auth, path); !slices.Equal(got, want) {
				t.Errorf("%s = %v, want %v", path, got, want)
			}
		}
		f.do("POST", app+"/import", referring("acme/proj/base", "base", "acme/base", "acme/proj/none", "a/b/c/d", "none/proj/base",
			"\x00/proj/base")).want(200, nil) // PostgreSQL cannot store the last name
		if got := f.references("", app+"/upstreamreferences"); !slices.Equal(got, []string{"acme/proj/base@0"}) {
			t.Errorf("references of app right after its update = %v", got)
		}
		f.do("POST", other+"/import", referring("acme/proj/base")).want(200, nil)
		check("", base+"/downstreamreferences", "acme/proj/app@1", "acme/proj/other@1")
		check("", base+"/upstreamreferences")
		check("", app+"/downstreamreferences")

		// A running update changes nothing. When it has finished, its state counts.
		u := f.start(other, "update")
		u.send("PATCH", "/checkpoint", referring("acme/proj/app")).want(204, nil)
		check("", base+"/downstreamreferences", "acme/proj/app@1", "acme/proj/other@2")
		u.send("POST", "/complete", map[string]string{"status": "succeeded"}).want(204, nil)
		check("", base+"/downstreamreferences", "acme/proj/app@1")
		check("", app+"/downstreamreferences", "acme/proj/other@2")

		// Callers see only stacks that they may see.
		f.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}).want(200, nil)
		ann := f.person("ann", "acme", "member")
		f.do("PUT", app+"/collaborators/ann", map[string]any{"permission": 101}).want(204, nil)
		check(ann, app+"/downstreamreferences")
		check(ann, app+"/upstreamreferences")
		f.do("PUT", other+"/collaborators/ann", map[string]any{"permission": 101}).want(204, nil)
		check(ann, app+"/downstreamreferences", "acme/proj/other@2")
		f.send(call{Method: "GET", Path: base + "/downstreamreferences", Auth: ann}).want(404, nil)

		// References are by name: a renamed stack is no longer referenced, and a deleted one neither
		// references nor is referenced.
		f.do("POST", base+"/rename", map[string]string{"newName": "renamed"}).want(200, nil)
		check("", "/api/stacks/acme/proj/renamed/downstreamreferences")
		check("", app+"/upstreamreferences")
		f.do("DELETE", other+"?force=true", nil).want(204, nil)
		check("", app+"/downstreamreferences")
	})
}

func TestManyReferences(t *testing.T) {
	f := newFixture(t, options{})
	base := f.stack("base")
	for i := range 120 { // more than are read at a time
		f.do("POST", f.stack(fmt.Sprintf("s%03d", i))+"/import", referring("acme/proj/base")).want(200, nil)
	}
	if err := f.stacks.ReadReferences(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := f.references("", base+"/downstreamreferences"); len(got) != 120 || !slices.IsSorted(got) || !strings.HasPrefix(got[119], "acme/proj/s119") {
		t.Errorf("%d references: %v", len(got), got)
	}
}
