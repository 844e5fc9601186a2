package api_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

const (
	packsPath  = "/api/orgs/acme/policypacks"
	groupsPath = "/api/orgs/acme/policygroups"
)

// TestPolicyPacks publishes versions of a pack as the CLI does, and removes them.
func TestPolicyPacks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		archive := make([]byte, 5<<20/2) // several pieces
		rand.Read(archive)
		if list := f.do("GET", packsPath, nil).want(200, nil); !strings.Contains(string(list.Body), `"policyPacks":[]`) {
			t.Errorf("the packs of a new organization: %s", list.Body)
		}
		upload := f.draft("acme", packDraft("aws", "1.0.0"))
		one := packsPath + "/aws/versions/1.0.0"
		f.do("POST", one+"/complete", nil).want(400, nil).says("has not arrived")
		for _, path := range []string{one, packsPath + "/aws/latest", one + "/schema"} {
			f.do("GET", path, nil).want(404, nil) // incomplete
		}
		f.put(upload, archive).want(204, nil)
		f.do("POST", one+"/complete", nil).want(204, nil)
		f.do("POST", one+"/complete", nil).want(400, nil).says("is published already")
		f.publishPack("acme", "aws", "1.1.0-beta", "archive")
		// A tag that is a number comes before the version with that number.
		f.publishPack("acme", "aws", "1", "archive")
		for path, want := range map[string]string{
			"/versions/1.0.0": `"version":1,"versionTag":"1.0.0"`, "/versions/2": `"version":2,"versionTag":"1.1.0-beta"`,
			"/versions/1": `"version":3,"versionTag":"1"`, "/latest": `"version":3,"versionTag":"1"`,
		} {
			f.do("GET", packsPath+"/aws"+path, nil).want(200, nil).says(want).says(`"applied":false`).says(`"name":"buckets"`)
		}
		f.do("GET", packsPath, nil).want(200, nil).says(`[{"name":"aws","displayName":"Pack aws","versions":[1,2,3],"versionTags":["1.0.0","1.1.0-beta","1"]}]`)
		f.do("GET", packsPath+"?policypack=azure", nil).want(200, nil).says("[]")
		var schema struct {
			ConfigSchema map[string]struct {
				Type       string
				Properties map[string]any
			}
		}
		f.do("GET", one+"/schema", nil).want(200, &schema)
		if s := schema.ConfigSchema["buckets"]; s.Type != "object" || s.Properties["max"] == nil {
			t.Errorf("the schema: %+v", schema)
		}

		stack := f.stack("dev")
		f.do("PATCH", groupsPath+"/default-policy-group", map[string]any{"addPolicyPack": map[string]any{"name": "aws", "versionTag": "1.0.0"}}).want(204, nil)
		list := f.required(stack, "update")
		if labels(list) != "aws 1.0.0" {
			t.Fatalf("required: %+v", list)
		}
		got := f.send(call{Method: "GET", Path: f.address(list[0].PackLocation), Auth: "none"}).want(200, nil)
		if !bytes.Equal(got.Body, archive) || got.Header.Get("Content-Length") != fmt.Sprint(len(archive)) {
			t.Errorf("downloaded %d bytes with the header %v", len(got.Body), got.Header)
		}
		f.do("GET", one, nil).want(200, nil).says(`"applied":true`)
		f.do("DELETE", one, nil).want(409, nil).says("default-policy-group")
		f.do("DELETE", packsPath+"/aws", nil).want(400, nil).says("default-policy-group")
		f.do("DELETE", packsPath+"/aws/versions/2", nil).want(200, nil)
		f.do("DELETE", packsPath+"/aws/versions/2", nil).want(404, nil)
		f.do("PATCH", groupsPath+"/default-policy-group", map[string]any{"removePolicyPack": map[string]any{"name": "aws", "versionTag": "1"}}).want(404, nil).says("but 1.0.0")
		f.do("PATCH", groupsPath+"/default-policy-group", map[string]any{"removePolicyPack": map[string]any{"name": "aws", "versionTag": "1.0.0"}}).want(204, nil)
		f.do("DELETE", packsPath+"/aws", nil).want(200, nil)
		f.do("GET", packsPath, nil).want(200, nil).says(`"policyPacks":[]`)
		f.do("GET", packsPath+"/aws/latest", nil).want(404, nil)
		if n, err := db.Blobs().Total(t.Context(), "policy-packs"); n != 0 || err != nil {
			t.Errorf("%d bytes of archives remain, %v", n, err)
		}
		// The numbers and tags of removed versions are never used again.
		f.do("POST", packsPath, packDraft("aws", "1.1.0-beta")).want(409, nil).says("was removed")
		var next struct{ Version int }
		f.do("POST", packsPath, packDraft("aws", "2.0.0")).want(201, &next)
		if next.Version != 4 {
			t.Errorf("the next number is %d, want 4", next.Version)
		}
	})
}

// TestRequiredPolicies tests which operations must run which packs, and with which configuration.
func TestRequiredPolicies(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		f.publishPack("acme", "aws", "1.0.0", "one")
		f.publishPack("acme", "aws", "2.0.0", "two")
		stack, other := f.stack("dev"), f.stack("other")
		f.do("POST", groupsPath, map[string]any{"name": "a group", "entityType": "stacks"}).want(204, nil)
		group := groupsPath + "/a%20group"
		f.do("PATCH", group, map[string]any{
			"addStack": map[string]any{"name": "dev", "routingProject": "proj"},
			"addPolicyPack": map[string]any{"name": "aws", "config": map[string]any{
				"all": "mandatory", "tags": map[string]any{"enforcementLevel": "disabled", "max": 3},
			}},
		}).want(204, nil)
		f.do("PATCH", groupsPath+"/default-policy-group", map[string]any{"addPolicyPack": map[string]any{"name": "aws", "versionTag": "1.0.0"}}).want(204, nil)
		list := f.required(stack, "update")
		if labels(list) != "aws 2.0.0" || list[0].Version != 2 || list[0].DisplayName != "Pack aws" {
			t.Fatalf("required: %+v", list)
		}
		config, err := json.Marshal(list[0].Config)
		const want = `{"all":{"enforcementLevel":"mandatory"},"buckets":{"enforcementLevel":"mandatory"},"tags":{"enforcementLevel":"disabled","max":3}}`
		if string(config) != want || err != nil {
			t.Errorf("config %s, want %s", config, want)
		}
		if list := f.required(other, "preview"); labels(list) != "aws 1.0.0" || list[0].Config["tags"]["enforcementLevel"] != "advisory" {
			t.Errorf("the other stack: %+v", list)
		}
		for _, kind := range []string{"destroy", "refresh"} {
			if list := f.required(stack, kind); list == nil || len(list) > 0 {
				t.Errorf("%s requires %v", kind, list)
			}
		}
		for kind, want := range map[string]string{"update": "aws 2.0.0", "preview": "aws 2.0.0", "destroy": "", "refresh": "", "resource-import": "aws 2.0.0"} {
			var begun struct {
				UpdateID, Token  string
				RequiredPolicies []required
			}
			f.do("POST", stack+"/begin-update", map[string]any{"updateKind": kind, "program": program()}).want(200, &begun)
			if labels(begun.RequiredPolicies) != want {
				t.Errorf("begin-update %s requires %+v", kind, begun.RequiredPolicies)
			}
			update{f, stack + "/update/" + begun.UpdateID, begun.Token}.send("POST", "/complete", map[string]any{"status": "succeeded"}).want(204, nil)
		}

		// Audit groups require nothing of updates.
		f.do("POST", groupsPath, map[string]any{"name": "audit", "entityType": "stacks", "mode": "audit"}).want(204, nil)
		f.do("PATCH", groupsPath+"/audit/batch", []any{
			map[string]any{"addStack": map[string]any{"name": "other", "routingProject": "proj"}},
			map[string]any{"addPolicyPack": map[string]any{"name": "aws", "versionTag": "2.0.0"}},
		}).want(204, nil)
		if list := f.required(other, "update"); labels(list) != "aws 1.0.0" {
			t.Errorf("with an audit group: %+v", list)
		}
		for query, want := range map[string]string{"": "aws 1.0.0, aws 2.0.0", "?mode=audit": "aws 2.0.0", "?mode=preventative": "aws 1.0.0"} {
			var got struct{ RequiredPolicies []required }
			f.do("GET", other+"/policypacks"+query, nil).want(200, &got)
			if labels(got.RequiredPolicies) != want {
				t.Errorf("packs%s: %+v", query, got)
			}
		}
		f.do("GET", other+"/policypacks?mode=both", nil).want(400, nil)
		f.do("GET", other+"/policygroups", nil).want(200, nil).says(`"name":"audit"`).says(`"name":"default-policy-group"`)
		f.do("GET", "/api/capabilities", nil).want(200, nil).says(`{"capability":"stack-policy-packs","version":1}`)
		f.do("GET", groupsPath+"/metadata", nil).want(200, nil).says(`"PreventativeStacks":2`).says(`"AuditStacks":1`).says(`"TotalStacks":2`)

		// A transferred or deleted stack leaves its groups; a restored one returns.
		f.do("DELETE", stack, nil).want(204, nil)
		f.do("GET", group, nil).want(200, nil).says(`"stacks":[]`)
		var deleted struct{ DeletedStacks []struct{ ID string } }
		f.do("GET", "/api/orgs/acme/restore-stack", nil).want(200, &deleted)
		f.do("POST", "/api/orgs/acme/restore-stack/"+deleted.DeletedStacks[0].ID, map[string]any{"stackName": "dev"}).want(204, nil)
		if list := f.required(stack, "update"); labels(list) != "aws 2.0.0" {
			t.Errorf("the restored stack requires %+v", list)
		}
		f.do("POST", stack+"/rename", map[string]any{"newName": "renamed"}).want(200, nil)
		stack = "/api/stacks/acme/proj/renamed"
		if list := f.required(stack, "update"); labels(list) != "aws 2.0.0" {
			t.Errorf("the renamed stack requires %+v", list)
		}
		f.do("POST", "/api/orgs", map[string]any{"name": "rival"}).want(201, nil)
		f.do("POST", stack+"/transfer", map[string]any{"toOrg": "rival"}).want(204, nil)
		if list := f.required("/api/stacks/rival/proj/renamed", "update"); len(list) > 0 {
			t.Errorf("the transferred stack requires %+v", list)
		}
		f.do("POST", "/api/stacks/rival/proj/renamed/transfer", map[string]any{"toOrg": "acme"}).want(204, nil)
		if list := f.required(stack, "update"); labels(list) != "aws 1.0.0" {
			t.Errorf("the returned stack requires %+v", list)
		}
	})
}

type group struct {
	Name, EntityType, Mode, AgentPoolID string
	IsOrgDefault                        bool
	Stacks                              []struct{ Name, RoutingProject string }
	AppliedPolicyPacks                  []required
	Accounts                            []string
}

func (f *fixture) group(name string) (g group) {
	f.t.Helper()
	f.do("GET", groupsPath+"/"+name, nil).want(200, &g)
	return g
}

// TestPolicyGroups changes groups one by one and with whole lists.
func TestPolicyGroups(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		f.publishPack("acme", "aws", "1.0.0", "one")
		f.publishPack("acme", "azure", "1.0.0", "two")
		f.stack("a")
		f.stack("b")
		summary := func(name string) string {
			t.Helper()
			var list struct{ PolicyGroups []json.RawMessage }
			f.do("GET", groupsPath, nil).want(200, &list)
			for _, g := range list.PolicyGroups {
				if strings.Contains(string(g), `"name":"`+name+`"`) {
					return string(g)
				}
			}
			return ""
		}
		if got := summary("default-policy-group"); got != `{"name":"default-policy-group","isOrgDefault":true,"numStacks":2,"numAccounts":0,"entityType":"stacks","mode":"preventative","numEnabledPolicyPacks":0}` {
			t.Errorf("the default group: %s", got)
		}
		if got := summary("default-accounts-policy-group"); !strings.Contains(got, `"mode":"audit"`) || !strings.Contains(got, `"numStacks":0`) {
			t.Errorf("the default group of accounts: %s", got)
		}
		create := func(body map[string]any) answer { t.Helper(); return f.do("POST", groupsPath, body) }
		create(map[string]any{"name": "one", "entityType": "stacks"}).want(204, nil)
		create(map[string]any{"name": "one", "entityType": "stacks"}).want(409, nil)
		create(map[string]any{"name": "default-policy-group", "entityType": "stacks"}).want(409, nil)
		create(map[string]any{"name": "accounts", "entityType": "accounts"}).want(204, nil)
		for _, bad := range []map[string]any{
			{"name": "", "entityType": "stacks"},
			{"name": " a", "entityType": "stacks"},
			{"name": "a/b", "entityType": "stacks"},
			{"name": "metadata"},
			{"name": "..", "entityType": "stacks"},
			{"name": "<b>", "entityType": "stacks"},
			{"name": strings.Repeat("a", 101), "entityType": "stacks"},
			{"name": "x", "entityType": "teams"},
			{"name": "x", "entityType": "stacks", "mode": "strict"},
			{"name": "x", "entityType": "accounts", "mode": "preventative"},
			{"name": "x", "entityType": "stacks", "agentPoolId": "none"},
			{"name": "x", "stackMatchRule": map[string]any{"and": []any{}}},
		} {
			create(bad).want(400, nil)
		}
		patch := func(group string, body any) answer {
			t.Helper()
			return f.do("PATCH", groupsPath+"/"+group, body)
		}
		stack := func(name string) map[string]any {
			return map[string]any{"name": name, "routingProject": "proj"}
		}
		patch("one", map[string]any{"addStack": stack("a")}).want(204, nil)
		patch("one", map[string]any{"addStack": stack("a")}).want(204, nil)
		patch("one", map[string]any{"addStack": stack("none")}).want(404, nil)
		f.do("POST", "/api/stacks/acme/other", map[string]any{"stackName": "b"}).want(200, nil)
		patch("one", map[string]any{"addStack": map[string]any{"name": "a"}}).want(204, nil)
		patch("one", map[string]any{"removeStack": map[string]any{"name": "b"}}).want(400, nil).says("other/b")
		f.do("DELETE", "/api/stacks/acme/other/b", nil).want(204, nil)
		patch("one", map[string]any{"stacks": []any{map[string]any{"name": "a"}, stack("a"), map[string]any{"name": "b"}}}).want(204, nil)
		patch("one", map[string]any{"removeStack": map[string]any{"name": "b", "routingProject": ""}}).want(204, nil)
		patch("one", map[string]any{"addPolicyPack": map[string]any{"name": "aws"}}).want(204, nil)
		patch("one", map[string]any{"addPolicyPack": map[string]any{"name": "none"}}).want(404, nil)
		patch("one", map[string]any{"addPolicyPack": map[string]any{"name": "aws", "versionTag": "9"}}).want(404, nil)
		patch("one", map[string]any{"addPolicyPack": map[string]any{"name": "aws", "environments": []string{"app/none"}}}).want(404, nil).says("has no environment app/none")
		for _, config := range []any{
			map[string]any{"unknown": "mandatory"}, map[string]any{"tags": "severe"}, map[string]any{"tags": 3}, map[string]any{"tags": map[string]any{"enforcementLevel": 3}},
		} {
			patch("one", map[string]any{"addPolicyPack": map[string]any{"name": "aws", "config": config}}).want(400, nil)
		}
		patch("one", map[string]any{"addPolicyPack": map[string]any{"name": "aws", "config": map[string]any{"tags": map[string]any{"max": strings.Repeat("x", 300<<10)}}}}).want(413, nil)
		patch("one", map[string]any{"addInsightsAccount": map[string]any{"name": "x"}}).want(400, nil)
		patch("accounts", map[string]any{"addStack": stack("a")}).want(400, nil)
		g := f.group("one")
		if len(g.Stacks) != 1 || g.Stacks[0].Name != "a" || labels(g.AppliedPolicyPacks) != "aws 1.0.0" || g.Accounts == nil || g.IsOrgDefault {
			t.Errorf("the group: %+v", g)
		}
		// Several changes are made together or not at all.
		patch("one/batch", []any{map[string]any{"newName": "two"}, map[string]any{"addStack": stack("none")}}).want(404, nil)
		patch("one/batch", []any{map[string]any{"newName": "two"}, map[string]any{"addStack": stack("b")}, map[string]any{"removeStack": stack("a")}}).want(204, nil)
		f.do("GET", groupsPath+"/one", nil).want(404, nil)
		// Lists replace all.
		patch("two", map[string]any{
			"newName": "one", "insightsAccounts": []string{}, "stacks": []any{stack("a"), stack("a")},
			"policyPacks": []any{map[string]any{"name": "azure", "version": 1, "versionTag": "1.0.0", "displayName": "x", "config": map[string]any{"tags": map[string]any{"max": 1}}}},
		}).want(204, nil)
		g = f.group("one")
		if len(g.Stacks) != 1 || g.Stacks[0].Name != "a" || labels(g.AppliedPolicyPacks) != "azure 1.0.0" || g.AppliedPolicyPacks[0].Config["tags"]["max"] != float64(1) {
			t.Errorf("the replaced group: %+v", g)
		}
		if got := summary("one"); !strings.Contains(got, `"numStacks":1`) || !strings.Contains(got, `"numEnabledPolicyPacks":1`) {
			t.Errorf("the summary: %s", got)
		}
		patch("one", map[string]any{"policyPacks": []any{map[string]any{"name": "aws"}, map[string]any{"name": "aws"}}}).want(400, nil)
		patch("one", map[string]any{"policyPacks": []any{}, "stacks": []any{}}).want(204, nil)
		if g = f.group("one"); len(g.Stacks)+len(g.AppliedPolicyPacks) > 0 {
			t.Errorf("the emptied group: %+v", g)
		}
		// Members may leave the default group. New stacks join it.
		const defaultGroup = "default-policy-group"
		patch(defaultGroup, map[string]any{"removeStack": stack("a")}).want(204, nil)
		f.stack("c")
		names := func() (out []string) {
			t.Helper()
			for _, st := range f.group(defaultGroup).Stacks {
				out = append(out, st.Name)
			}
			return out
		}
		if got := names(); !slices.Equal(got, []string{"b", "c"}) {
			t.Errorf("the default group has %v", got)
		}
		patch(defaultGroup, map[string]any{"stacks": []any{stack("a"), stack("c")}}).want(204, nil)
		if got := names(); !slices.Equal(got, []string{"a", "c"}) {
			t.Errorf("the default group has %v", got)
		}
		for _, refused := range []map[string]any{{"newName": "x"}} {
			patch(defaultGroup, refused).want(400, nil)
		}
		f.do("DELETE", groupsPath+"/"+defaultGroup, nil).want(400, nil)
		f.do("DELETE", groupsPath+"/default-accounts-policy-group", nil).want(400, nil)
		var page struct {
			Stacks            []struct{ Name, RoutingProject, Source string }
			ContinuationToken string
		}
		f.do("GET", groupsPath+"/"+defaultGroup+"/stacks?count=1", nil).want(200, &page)
		first := slices.Clone(page.Stacks)
		f.do("GET", groupsPath+"/"+defaultGroup+"/stacks?count=1&continuationToken="+page.ContinuationToken, nil).want(200, &page)
		if len(first) != 1 || len(page.Stacks) != 1 || first[0].Name == page.Stacks[0].Name || page.Stacks[0].Source != "explicit" {
			t.Errorf("pages of members: %+v, %+v", first, page)
		}
		f.do("GET", groupsPath+"/"+defaultGroup+"/stacks?source=rule", nil).want(200, nil).says(`"stacks":[]`)
		f.do("GET", groupsPath+"/"+defaultGroup+"/stacks?count=501", nil).want(400, nil)
		f.do("GET", groupsPath+"/"+defaultGroup+"/accounts", nil).want(200, nil).says(`"accounts":[]`)
		// The pool of evaluations.
		var pool struct{ ID string }
		f.do("POST", "/api/orgs/acme/agent-pools", map[string]any{"name": "p"}).want(200, &pool)
		patch("one", map[string]any{"agentPoolId": pool.ID}).want(204, nil)
		patch("one", map[string]any{"newName": "one"}).want(204, nil)
		if g = f.group("one"); g.AgentPoolID != pool.ID {
			t.Errorf("the pool is %q", g.AgentPoolID)
		}
		f.do("DELETE", "/api/orgs/acme/agent-pools/"+pool.ID, nil).want(400, nil).says("policy groups")
		patch("one", map[string]any{"agentPoolId": ""}).want(204, nil)
		f.do("DELETE", groupsPath+"/one", nil).want(204, nil)
		f.do("DELETE", groupsPath+"/one", nil).want(404, nil)
	})
}
