package api_test

import (
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

// TestEnvironmentsOfPacks gives a pack environments, which updates and evaluations open.
func TestEnvironmentsOfPacks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		f.publishPack("acme", "aws", "1.0.0", "one")
		f.stack("a")
		f.environment("base")
		env := f.environment("cis")
		const group = "default-policy-group"
		set := func(environments ...string) answer {
			t.Helper()
			return f.do("PATCH", groupsPath+"/"+group, map[string]any{"addPolicyPack": map[string]any{"name": "aws", "versionTag": "1.0.0", "environments": environments}})
		}
		uses := func(path string) bool {
			t.Helper()
			return strings.Contains(string(f.do("GET", path+"/grants", nil).want(200, nil).Body), `{"policyGroup":"default-policy-group","policyPack":"aws"}`)
		}
		want := []string{"app/base", "app/cis@stable"}
		set(want...).want(204, nil)
		if g := f.group(group); len(g.AppliedPolicyPacks) != 1 || !slices.Equal(g.AppliedPolicyPacks[0].Environments, want) {
			t.Errorf("the group has %+v", g.AppliedPolicyPacks)
		}
		if list := f.required("/api/stacks/acme/proj/a", "update"); len(list) != 1 || !slices.Equal(list[0].Environments, want) {
			t.Errorf("an update requires %+v", list)
		}
		if !uses(env) || !uses(strings.Replace(env, "cis", "base", 1)) {
			t.Error("the environments do not list the pack")
		}
		entries := func() int {
			return strings.Count(string(f.do("GET", "/api/orgs/acme/auditlogs?eventFilter=policy-group.changed", nil).want(200, nil).Body), `"policy-group.changed"`)
		}
		before := entries()
		set(want...).want(204, nil)
		if got := entries(); got != before {
			t.Errorf("the same environments again: %d entries, before %d", got, before)
		}
		set("a b").want(400, nil)
		set(slices.Repeat([]string{"app/base"}, 21)...).want(400, nil).says("at most 20 environments")

		// Another environment with the name is used only after the group is changed again.
		f.do("DELETE", env, nil).want(200, nil)
		set(want...).want(404, nil).says("has no environment app/cis")
		f.environment("cis")
		if uses(env) {
			t.Error("the pack uses an environment with the name of the deleted one")
		}
		set(want...).want(204, nil)
		if got := entries(); !uses(env) || got != before+1 {
			t.Errorf("after the change: %d entries", got)
		}
		f.do("PATCH", groupsPath+"/"+group, map[string]any{"removePolicyPack": map[string]any{"name": "aws"}}).want(204, nil)
		if uses(env) {
			t.Error("the environment lists a pack that the group does not have")
		}
	})
}
