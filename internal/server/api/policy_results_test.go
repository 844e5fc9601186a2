package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// obey adds a group of all stacks of an organization with the pack "aws", which has the mandatory policy "tags" and the
// advisory policy "size".
func (f *fixture) obey(org string) {
	f.t.Helper()
	err := f.db.Write(f.t.Context(), scope.Server(), func(tx *store.Tx) error {
		o, err := tx.OrganizationByName(org)
		if err != nil {
			return err
		}
		id := identity.NewID()
		if err := tx.InsertPolicyPack(store.PolicyPack{ID: "pack" + id, OrgID: o.ID, Name: "aws"}); err != nil {
			return err
		}
		v := store.PolicyPackVersion{
			ID: "version" + id, PackID: "pack" + id, Number: 1, Tag: "1.0.0", Status: store.PackComplete, Configurable: true, Blob: "policy-packs/" + id,
			Levels:   []store.PolicyLevel{{Name: "tags", Level: "mandatory"}, {Name: "size", Level: "advisory"}},
			Policies: `[{"name":"tags","displayName":"Tags","description":"d","enforcementLevel":"mandatory","message":"m","severity":"high"}]`,
		}
		if err := tx.InsertPackVersion(v); err != nil {
			return err
		}
		g := store.PolicyGroup{ID: "group" + id, OrgID: o.ID, Name: "prod", EntityType: policies.Stacks, Mode: policies.Preventative, AllStacks: true}
		if err := tx.InsertPolicyGroup(g); err != nil {
			return err
		}
		return tx.SaveEnabledPack(store.EnabledPack{GroupID: g.ID, PackID: "pack" + id, VersionID: v.ID})
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// violate runs an update that violates two policies.
func (f *fixture) violate(stack string) {
	f.t.Helper()
	u := f.start(stack, "update")
	_, name, _ := strings.Cut(stack, "/proj/")
	event := func(sequence int, body string) string {
		return fmt.Sprintf(`{"sequence":%d,"timestamp":1,%s}`, sequence, strings.ReplaceAll(body, "URN", bucketURN(name)))
	}
	events := []string{
		event(0, `"policyEvent":{"resourceUrn":"URN","message":"<{%fg 1%}>=no <b>tags</b><{%reset%}>\n","color":"raw","policyName":"tags","policyPackName":"aws","policyPackVersion":"1.0.0","policyPackVersionTag":"1.0.0","enforcementLevel":"mandatory","severity":"high"}`),
		event(1, `"policyEvent":{"resourceUrn":"URN","message":"too big","color":"raw","policyName":"size","policyPackName":"aws","policyPackVersion":"1.0.0","policyPackVersionTag":"1.0.0","enforcementLevel":"advisory","severity":"low"}`),
		event(2, `"policyAnalyzeSummaryEvent":{"resourceUrn":"URN","policyPackName":"aws","policyPackVersion":"1.0.0","policyPackVersionTag":"1.0.0","failed":["size","tags"]}`),
		event(3, `"summaryEvent":{"maybeCorrupt":false,"durationSeconds":1,"resourceChanges":{"same":1},"PolicyPacks":{"aws":"1.0.0"}}`),
	}
	u.send("POST", "/events/batch", `{"events":[`+strings.Join(events, ",")+`]}`).want(200, nil)
	u.send("POST", "/complete", map[string]string{"status": "failed"}).want(204, nil)
}

func bucketURN(stack string) string {
	return "urn:pulumi:" + stack + "::proj::aws:s3/bucket:Bucket::b"
}

type issueList struct {
	PolicyIssues []struct{ ID, PolicyName, Status, Message, EntityID, ResourceProvider string }
	GroupData    []map[string]any
	RowCount     int
}

func (l issueList) names() string {
	var out []string
	for _, i := range l.PolicyIssues {
		out = append(out, i.EntityID+" "+i.PolicyName)
	}
	return strings.Join(out, ", ")
}

// TestPolicyIssues lists, filters, exports and changes issues as clients do.
func TestPolicyIssues(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db, deployments.Options{})
		l.obey("acme")
		l.violate(l.stack("dev"))
		const path = "/api/orgs/acme/policyresults"
		var all issueList
		l.do("POST", path+"/issues", `{"startRow":0,"endRow":100,"sortModel":null}`).want(200, &all)
		if all.RowCount != 2 || all.PolicyIssues[0].ResourceProvider != "aws" {
			t.Fatalf("the issues are %+v", all)
		}
		leaf := func(column, op, value string) string {
			return fmt.Sprintf(`{"colId":%q,"filterType":"text","type":%q,"filter":%q}`, column, op, value)
		}
		for filter, want := range map[string]string{
			`null`: "dev tags, dev size",
			`{"type":"AND","conditions":[` + leaf("severity", "equals", "high") + `]}`:                                                                                                                                                 "dev tags",
			`{"type":"AND","conditions":[{"filterType":"join","type":"OR","conditions":[` + leaf("policyName", "equals", "size") + `,` + leaf("message", "contains", "<b>") + `]}]}`:                                                   "dev tags, dev size",
			`{"type":"AND","conditions":[{"filterType":"join","type":"AND","conditions":[` + leaf("entityType", "equals", "stack") + `,` + leaf("entityProject", "equals", "proj") + `,` + leaf("entityId", "equals", "prod") + `]}]}`: "",
			`{"type":"AND","conditions":[` + leaf("resourceURN", "startsWith", "urn:pulumi:dev") + `,` + leaf("policyPack", "notEqual", "aws") + `]}`:                                                                                  "",
			`{"type":"AND","conditions":[` + leaf("assignedTo", "equals", "") + `,` + leaf("status", "equals", "open") + `,` + leaf("stackVersion", "equals", "1") + `]}`:                                                              "dev tags, dev size",
			`{"type":"AND","conditions":[` + leaf("message", "contains", "%") + `]}`:                                                                                                                                                   "",
		} {
			var list issueList
			l.do("POST", path+"/issues", `{"startRow":0,"endRow":10,"filterModel":`+filter+`,"sortModel":[{"colId":"severity","sort":"desc"}]}`).want(200, &list)
			if got := list.names(); got != want {
				t.Errorf("the filter %s selects %q, want %q", filter, got, want)
			}
		}
		for _, body := range []string{
			`{"filterModel":{"type":"AND","conditions":[` + leaf("i.id; --", "equals", "x") + `]}}`, `{"filterModel":{"type":"AND","conditions":[` + leaf("status", "like", "x") + `]}}`,
			`{"filterModel":{"type":"NOT","conditions":[` + leaf("status", "equals", "x") + `]}}`, `{"sortModel":[{"colId":"id","sort":"asc"}]}`, `{"sortModel":[{"colId":"status","sort":"up"}]}`,
			`{"startRow":-1}`, `{"groupKeys":["x"]}`, `{"filterModel":` + strings.Repeat(`{"type":"AND","conditions":[`, 20) + leaf("status", "equals", "x") + strings.Repeat(`]}`, 20) + `}`,
		} {
			l.do("POST", path+"/issues", body).want(400, nil)
		}
		for column := range store.IssueColumns {
			l.do("POST", path+"/issues", `{"sortModel":[{"colId":"`+column+`","sort":"asc"}]}`).want(200, nil)
		}
		var grouped issueList
		l.do("POST", path+"/issues", `{"rowGroupCols":[{"id":"severity","displayName":"Severity","field":"severity"}],"groupKeys":[]}`).want(200, &grouped)
		if len(grouped.GroupData) != 2 || grouped.RowCount != 2 {
			t.Errorf("the groups are %+v", grouped)
		}
		var values struct {
			Values []struct {
				Name  string
				Count int
			}
		}
		l.do("POST", path+"/issues/filters", `{"field":"level"}`).want(200, &values)
		if len(values.Values) != 2 || values.Values[0].Name != "advisory" || values.Values[0].Count != 1 {
			t.Errorf("the values are %+v", values)
		}
		l.do("POST", path+"/issues/export", `{}`).want(200, nil).says(",aws,1.0.0,tags,mandatory,high,open,p3,preventative,prod,").says("'=no <b>tags</b>").says("too big")

		issue := path + "/issues/" + all.PolicyIssues[0].ID
		l.person("ann", "acme", "member")
		for _, change := range []string{
			`{"status":"fixed"}`, `{"status":"by_design"}`, `{"priority":"p9"}`, `{"assignedTo":"nobody"}`, `{"reason":"why"}`, `{"status":"ignored","ignoredForSeconds":-1}`,
		} {
			l.do("PATCH", issue, change).want(400, nil)
		}
		l.do("PATCH", issue, `{"status":"ignored","reason":"LOG-1","ignoredForSeconds":3600,"priority":"p0","assignedTo":"ann"}`).want(200, nil).
			says(`"status":"ignored"`).says(`"reason":"LOG-1"`).says(`"ignoredUntil":`).says(`"githubLogin":"ann"`)
		var open, closed issueList
		l.do("POST", path+"/issues", `{}`).want(200, &open)
		l.do("POST", path+"/issues?closed=true", `{}`).want(200, &closed)
		if open.RowCount != 1 || closed.RowCount != 1 || closed.PolicyIssues[0].ID != all.PolicyIssues[0].ID {
			t.Errorf("open are %+v, closed %+v", open, closed)
		}
		l.do("GET", issue, nil).want(200, nil).says(`"policyIssue":{"id":"` + all.PolicyIssues[0].ID)
		// The end of the time in which an issue is ignored needs no work.
		err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			_, err := tx.Exec("UPDATE policy_issues SET ignored_until = 1 WHERE ignored_until > 0")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		l.do("POST", path+"/issues", `{"filterModel":{"type":"AND","conditions":[`+leaf("status", "equals", "open")+`]}}`).want(200, &open)
		if open.RowCount != 2 {
			t.Errorf("after the time, %d issues are open", open.RowCount)
		}
		l.do("GET", issue, nil).want(200, nil).says(`"status":"open"`)
	})
}

// TestPolicyCompliance reads what all stacks together show.
func TestPolicyCompliance(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	l.obey("acme")
	l.violate(l.stack("dev"))
	const path = "/api/orgs/acme/policyresults"
	l.do("POST", path+"/compliance", `{"entity":"stack","size":100}`).want(200, nil).says(`{"columns":["prod/aws"],"rows":[{"entityName":"proj/dev","scores":[0]}]}`)
	l.do("POST", path+"/compliance", `{"entity":"severity"}`).want(200, nil).says(`"columns":["critical","high","medium","low"]`).says(`"scores":[-1,0,-1,-1]`)
	l.do("POST", path+"/compliance", `{"entity":"account"}`).want(200, nil).says(`{"columns":[],"rows":[]}`)
	l.do("POST", path+"/compliance", `{"entity":"planet"}`).want(400, nil)
	l.do("POST", path+"/policies", `{"startRow":1,"endRow":2}`).want(200, nil).says(`"policyName":"tags"`).says(`"totalCount":2`).says(`"failingResources":1`)
	l.do("GET", path+"/metadata", nil).want(200, nil).says(`"policyTotalCount":2,"policyWithIssuesCount":2`).says(`"resourcesWithIssuesCount":1`)
	l.do("GET", path+"/violationsv2", nil).want(404, nil).says("list policy issues")
}

// TestPolicyIssuesOfOthers tests that lists contain only the stacks that a caller sees, that only those who may write to
// a stack change its issues, and that two organizations with packs of one name see nothing of each other.
func TestPolicyIssuesOfOthers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db, deployments.Options{})
		l.do("POST", "/api/orgs", map[string]string{"name": "rival"}).want(201, nil)
		for _, org := range []string{"acme", "rival"} {
			l.obey(org)
			l.do("POST", "/api/stacks/"+org+"/proj", map[string]string{"stackName": "dev"}).want(200, nil)
			l.violate("/api/stacks/" + org + "/proj/dev")
		}
		reader, stranger := l.person("reader", "acme", "member"), l.person("stranger", "rival", "admin")
		l.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}).want(200, nil)
		const path = "/api/orgs/acme/policyresults"
		var list issueList
		get := func(auth string) int {
			t.Helper()
			l.send(call{Method: "POST", Path: path + "/issues", Body: "{}", Auth: auth}).want(200, &list)
			return list.RowCount
		}
		if n := get(""); n != 2 {
			t.Fatalf("an administrator sees %d issues", n)
		}
		issue := path + "/issues/" + list.PolicyIssues[0].ID
		if n := get(reader); n != 0 {
			t.Errorf("a member without permission on the stack sees %d issues", n)
		}
		for _, c := range []call{
			{Method: "POST", Path: path + "/compliance", Body: `{"entity":"stack"}`},
			{Method: "POST", Path: path + "/policies", Body: `{}`},
			{Method: "POST", Path: path + "/issues/export", Body: `{}`},
			{Method: "POST", Path: path + "/issues/filters", Body: `{"field":"entityId"}`},
			{Method: "GET", Path: path + "/metadata"},
		} {
			c.Auth = reader
			if a := l.send(c).want(200, nil); strings.Contains(string(a.Body), "dev") || strings.Contains(string(a.Body), "1") {
				t.Errorf("%s shows a member without permission on the stack: %s", c.Path, a.Body)
			}
			c.Auth = stranger
			l.send(c).want(404, nil)
		}
		l.send(call{Method: "GET", Path: issue, Auth: reader}).want(404, nil)
		l.do("PUT", "/api/stacks/acme/proj/dev/collaborators/reader", map[string]int{"permission": 101}).want(204, nil)
		if n := get(reader); n != 2 {
			t.Errorf("a reader of the stack sees %d issues", n)
		}
		change := call{Method: "PATCH", Path: issue, Body: `{"priority":"p1"}`, Auth: reader}
		l.send(change).want(403, nil)
		l.do("PUT", "/api/stacks/acme/proj/dev/collaborators/reader", map[string]int{"permission": 102}).want(204, nil)
		l.send(change).want(200, nil).says(`"priority":"p1"`)
		change.Auth = stranger
		l.send(change).want(404, nil)
		// The other organization's id of an issue is not one of ours.
		change.Path = strings.Replace(issue, "/acme/", "/rival/", 1)
		l.send(change).want(404, nil)
	})
}

// TestPolicyExceptions gives, lists and removes an exception as the CLI does.
func TestPolicyExceptions(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db, deployments.Options{})
		l.obey("acme")
		stack := l.stack("dev")
		const path = "/api/orgs/acme/policy/exceptions"
		body := map[string]any{
			"policyPack": "aws", "reason": "LOG-31", "expiresInSeconds": 7200,
			"match": []any{map[string]any{"policies": []string{"tags"}, "targets": []string{bucketURN("dev")}}},
		}
		l.do("POST", path, body).want(201, nil).says(`"id":"EXC-1","policyPack":"aws","match":[{"policies":["tags"],"targets":["` + bucketURN("dev") + `"]}]`).
			says(`"status":"active","expiresAt":`).says(`"createdBy":{"name":"admin"`)
		l.do("POST", path, body).want(200, nil).says(`"id":"EXC-1"`)
		member := l.person("ann", "acme", "member")
		l.send(call{Method: "POST", Path: path, Body: body, Auth: member}).want(403, nil)
		l.send(call{Method: "DELETE", Path: path + "/EXC-1", Auth: member}).want(403, nil)
		l.send(call{Method: "GET", Path: path + "/EXC-1", Auth: member}).want(200, nil).says("LOG-31")
		l.send(call{Method: "GET", Path: path, Auth: l.person("stranger", "", "")}).want(404, nil)
		l.do("POST", path+"/drafts", body).want(400, nil).says("without --draft")
		for query, want := range map[string]string{
			"": "EXC-1", "?policyPack=aws&policy=tags&stack=proj/dev": "EXC-1", "?policyPack=gcp": `"exceptions":[]`, "?policy=size": `"exceptions":[]`,
			"?stack=proj/other": `"exceptions":[]`, "?status=removed": `"exceptions":[]`, "?status=removed&status=active": "EXC-1",
		} {
			l.do("GET", path+query, nil).want(200, nil).says(want)
		}
		l.do("GET", path+"?status=odd", nil).want(400, nil)
		for _, kind := range []string{"update", "preview"} {
			l.do("POST", stack+"/"+kind, program()).want(200, nil).says(`"exceptions":{"EXC-1":{"reason":"LOG-31","match":[{"policies":["tags"],"targets":["` + bucketURN("dev") + `"]}]}}`)
		}
		l.do("GET", stack+"/policypacks", nil).want(200, nil).says(`"exceptions":{"EXC-1"`)
		l.do("POST", stack+"/destroy", program()).want(200, nil).says(`"requiredPolicies":[]`)
		l.do("DELETE", path+"/EXC-1", nil).want(204, nil)
		l.do("DELETE", path+"/EXC-1", nil).want(409, nil).says("already removed")
		l.do("DELETE", path+"/EXC-01", nil).want(404, nil)
		l.do("GET", path+"/EXC-1", nil).want(200, nil).says(`"status":"removed"`).says(`"removedBy":{"name":"admin"`)

		body["wholeStack"] = true
		l.do("POST", path, body).want(201, nil).says(`"id":"EXC-2"`).says(`"wholeStack":true`)
		l.do("POST", stack+"/update", program()).want(200, nil).says(`"tags":{"enforcementLevel":"advisory"}`).
			says(`"message":"policy tags of aws is advisory for this stack: exception EXC-2 covers the whole stack"`)
	})
}

// TestExportOfManyIssues tests that an export holds only the memory of a page.
func TestExportOfManyIssues(t *testing.T) {
	f := newFixture(t, options{limits: request.Limits{Together: 20 << 20, Patience: time.Millisecond}})
	f.stack("dev")
	err := f.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		st, err := tx.StackByName("acme", "proj", "dev")
		for i := 0; i < 2*results.MaxPage+1 && err == nil; i++ {
			id := fmt.Sprint("issue", i)
			err = tx.InsertPolicyIssue(store.PolicyIssue{ID: id, StackID: st.ID, Kind: policies.Preventative, Pack: "aws", MessageHash: id, Status: store.IssueOpen})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	csv := string(f.do("POST", "/api/orgs/acme/policyresults/issues/export", `{}`).want(200, nil).Body)
	if lines := strings.Count(csv, "\n"); lines != 2*results.MaxPage+2 {
		t.Errorf("the export has %d lines", lines)
	}
}
