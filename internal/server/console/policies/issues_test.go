package policies_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/server/store"
)

const urn = "urn:pulumi:prod::web::aws:s3/bucket:Bucket::logs"

// issues adds an issue with a hostile message to web/prod for each level, and one to web/dev.
func (f *fixture) issues() {
	f.t.Helper()
	f.write(func(tx *store.Tx) error {
		for i, each := range []struct{ stack, level, pack string }{{"prod", "mandatory", "aws"}, {"prod", "advisory", "aws"}, {"dev", "mandatory", "gcp"}} {
			id, err := tx.StackID(f.org.ID, "web", each.stack)
			if err != nil {
				return err
			}
			at := tx.Now().Add(-time.Duration(i) * time.Hour)
			err = tx.InsertPolicyIssue(store.PolicyIssue{
				ID: "i" + string(rune('1'+i)), OrgID: f.org.ID, StackID: id, Kind: "preventative", Pack: each.pack, Policy: "no-public", URN: urn, MessageHash: each.level, Message: each.level + " of " + hostile + "\nsecond line",
				Tag: "2.0.0", Level: each.level, Severity: "high", ResourceType: "aws:s3/bucket:Bucket", ResourceName: "logs", Group: "default-policy-group", Status: store.IssueOpen, Priority: "p3",
				Version: 7, ObservedAt: at, SeenAt: at, ModifiedAt: at,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func TestIssues(t *testing.T) {
	f := newFixture(t, consoletest.New(t))
	const issues = base + "/issues"
	f.get(f.member, issues, "No open issue")
	f.issues()
	p := f.get(f.member, issues, "mandatory of", "advisory of", "web/ prod", "web/ dev", "Policies 3")
	f.hides(issues, p, "second line</")
	for query, want := range map[string]string{
		"level=advisory": "i2", "pack=gcp": "i3", "stack=web/dev": "i3", "q=advisory+of": "i2", "pack=aws&level=mandatory": "i1",
	} {
		p := f.get(f.member, issues+"?"+query)
		for _, id := range []string{"i1", "i2", "i3"} {
			if p.Contains(issues+"/"+id+`"`) != (id == want) {
				t.Errorf("%s: the page shows %s: %v", query, id, id != want)
			}
		}
	}
	f.get(f.member, issues+"?state=closed", "No issue matches")
	f.get(f.member, issues+"?stack=other", "No issue matches")
	if p := f.member.Get(issues + "?after=-1"); p.Status != http.StatusOK || !p.Contains("page of policy issues does not exist") {
		t.Errorf("a page that does not exist: status %d: %s", p.Status, p.Text())
	}
	f.get(f.member, base, "aws no group 2.0.0 2 policies 1 mandatory 1 advisory")

	const one = issues + "/i1"
	p = f.get(f.member, one, "mandatory of", "second line", "/acme/web/prod/updates/7", "/acme/web/prod/resources?urn="+url.QueryEscape(urn), "default-policy-group, preventative")
	f.hides(one, p, "Give an exception")
	f.get(f.admin, one, base+"/exceptions/new?pack=aws&amp;policy=no-public&amp;target="+url.QueryEscape(urn))

	f.shows(one, f.post(f.member, one, http.StatusUnprocessableEntity, "status", "ignored", "lasts", "7", "priority", "p1"), "needs a reason", `name="reason" type="text" value="" autocomplete="off" spellcheck="false" aria-invalid="true"`)
	f.shows(one, f.post(f.member, one, http.StatusUnprocessableEntity, "status", "open", "assignee", "stranger"), `has no member "stranger"`, `value="stranger"`)
	f.post(f.member, one, http.StatusSeeOther, "status", "ignored", "reason", hostile, "lasts", "7", "assignee", "ann", "priority", "p1")
	f.get(f.member, one, "Ignored until", "assigned to ann", "as now: until")
	f.hides(issues, f.get(f.member, issues), one+`"`)
	f.get(f.member, issues+"?state=closed&mine=on", one)
	f.post(f.member, one, http.StatusSeeOther, "status", "open", "assignee", "", "priority", "p1")
	f.get(f.member, issues, one)
}

// TestIssuesOfOthers tests that members see only issues of stacks that they may read, and change only those of stacks to
// which they may write.
func TestIssuesOfOthers(t *testing.T) {
	f := newFixture(t, consoletest.New(t))
	f.issues()
	f.API(http.MethodPatch, "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}, nil)
	f.API(http.MethodPut, "/api/stacks/acme/web/dev/collaborators/ann", map[string]any{"permission": 101}, nil)
	p := f.get(f.member, base+"/issues", "web/ dev", "Policies 1")
	f.hides(base+"/issues", p, "prod", "issues/i1", "issues/i2")
	if p := f.member.Get(base + "/issues/i1"); p.Status != http.StatusNotFound {
		t.Errorf("an issue of a stack that the member may not see: status %d", p.Status)
	}
	f.hides(base, f.get(f.member, base), "1 advisory")
	p = f.get(f.member, base+"/issues/i3")
	f.hides(base+"/issues/i3", p, `method="post" action="`+base)
	f.post(f.member, base+"/issues/i3", http.StatusUnprocessableEntity, "status", "ignored", "reason", "x", "lasts", "0")
}

func TestExceptions(t *testing.T) {
	f := newFixture(t, consoletest.New(t))
	const list = base + "/exceptions"
	p := f.get(f.member, list, "No exception applies")
	f.hides(list, p, "New exception")
	f.get(f.admin, list+"/new?pack=gcp&policy=tags&target="+url.QueryEscape(urn), `<option value="gcp" selected>`, ">tags</textarea>", ">"+urn+"</textarea>", "The policies are advisory for all resources of the stack")
	good := map[string]string{"pack": "aws", "policies": "no-public\ntags", "targets": urn, "reason": hostile, "lasts": "7", "whole": ""}
	send := func(want int, change ...string) consoletest.Page {
		fields := []string{}
		for name, value := range good {
			if at := strings.Index(change[0], "="); at > 0 && change[0][:at] == name {
				value = change[0][at+1:]
			}
			fields = append(fields, name, value)
		}
		return f.post(f.admin, list, want, fields...)
	}
	for change, want := range map[string]string{
		"reason=":        `id="reason-problem"`,
		"policies=other": `id="policies-problem"`,
		"policies=all":   `id="policies-problem"`,
		"targets=bucket": `id="targets-problem"`,
		"targets=urn:pulumi:none::web::aws:s3/bucket:Bucket::logs": `id="targets-problem"`,
		"pack=none": `id="pack-problem"`,
	} {
		p := send(http.StatusUnprocessableEntity, change)
		f.shows(change, p, want)
		if !strings.HasPrefix(change, "policies=") {
			f.shows(change, p, ">no-public\ntags</textarea>")
		}
		f.hides(change, p, "match[0]")
	}
	if p := send(http.StatusSeeOther, "x"); p.Location() != list+"/EXC-1" {
		t.Errorf("after an exception was given: %q", p.Location())
	}
	send(http.StatusSeeOther, "whole=on")
	p = f.get(f.member, list, "EXC-1", "EXC-2", "a whole stack", "1 resource", "no-public, tags", "Policies 2")
	f.hides(list, p, "New exception")
	p = f.get(f.member, list+"/EXC-2", "covers the whole stack", "The policies are advisory for all resources of the stack", urn)
	f.hides(list+"/EXC-2", p, "Remove…")
	f.get(f.admin, list+"/EXC-1", "Versions of pulumi that know no exceptions ignore this one", "Remove…")

	if p := f.post(f.admin, list, http.StatusSeeOther, "pack", "aws", "policies", "tags", "stack", "web/dev", "reason", "dev", "lasts", "7", "whole", "on"); p.Location() != list+"/EXC-3" {
		t.Errorf("after an exception for a named stack: %q", p.Location())
	}
	f.get(f.admin, list+"/EXC-3", "urn:pulumi:dev::web::pulumi:pulumi:Stack::web-dev")
	f.API(http.MethodPatch, "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}, nil)
	f.API(http.MethodPut, "/api/stacks/acme/web/dev/collaborators/ann", map[string]any{"permission": 101}, nil)
	f.get(f.member, list+"/EXC-3", "urn:pulumi:dev::web::pulumi:pulumi:Stack::web-dev")
	f.hides(list+"/EXC-1", f.get(f.member, list+"/EXC-1", "You may not read their stack", "no-public"), urn, "urn:pulumi")
	f.hides(list, f.get(f.member, list, "EXC-1", "resources"), "1 resource ")
	f.post(f.member, list+"/EXC-1/remove", http.StatusForbidden)
	f.post(f.admin, list+"/EXC-1/remove", http.StatusSeeOther)
	f.get(f.member, list+"/EXC-1", "removed by admin")
	f.hides(list, f.get(f.member, list), "EXC-1")
	f.get(f.member, list+"?state=removed", "EXC-1", "removed")
	if p := f.member.Get(list + "/EXC-9"); p.Status != http.StatusNotFound {
		t.Errorf("an unknown exception: status %d", p.Status)
	}
	f.AgeSessions(16 * time.Minute)
	f.get(f.admin, list+"/new", "Sign in again")
}

func TestCompliance(t *testing.T) {
	f := newFixture(t, consoletest.New(t))
	const path = base + "/compliance"
	f.get(f.member, path, "No stack that you can see has a result")
	f.write(func(tx *store.Tx) error {
		for _, each := range []struct {
			stack, pack, problem string
			failed               int64
			ran                  bool
		}{{"prod", "aws", "", 1, true}, {"dev", "aws", "", 0, true}, {"dev", "gcp", "no host", 0, false}, {"prod", "other", "", 0, false}} {
			id, err := tx.StackID(f.org.ID, "web", each.stack)
			if err != nil {
				return err
			}
			err = tx.SavePolicyStanding(store.PolicyStanding{
				StackID: id, Kind: "preventative", Pack: each.pack, PackID: each.pack, Number: 1, Tag: "1.0.0", Group: "prod", Version: 7, At: tx.Now(), Ran: each.ran, Problem: each.problem,
				Levels: []store.PolicyLevel{{Name: "no-public", Level: "mandatory"}, {Name: "tags", Level: "advisory"}}, Counts: []store.PolicyCount{{Policy: "tags", Passed: 3, Failed: each.failed}},
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	f.get(f.member, path, "Stack prod/aws prod/gcp prod/other web/dev 100 % error not run web/prod 50 % not run not run", "Policies 2 Packs", "/acme/web/prod")
	f.get(f.member, path+"?by=severity", "prod/aws", "high", base+"/packs/aws")

	f.API(http.MethodPatch, "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}, nil)
	f.API(http.MethodPut, "/api/stacks/acme/web/dev/collaborators/ann", map[string]any{"permission": 101}, nil)
	p := f.get(f.member, path, "web/dev", "Policies 1 Packs")
	f.hides(path, p, "web/prod", "prod/other")
}
