package results_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// TestIssuesFollowUpdates tests when issues open, remain, close and open again.
func TestIssuesFollowUpdates(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db)
		check := func(when string, want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, l.issues()); diff != "" {
				t.Errorf("%s, the issues are (-want +got):\n%s", when, diff)
			}
		}
		l.run(stacks.KindPreview, violates("aws", "tags", "mandatory", "a", "no tags"), evaluates("a", ``, `"tags"`))
		if got := l.issues(); len(got) > 0 {
			t.Errorf("a preview opened issues: %q", got)
		}
		u, _ := l.begin(stacks.KindUpdate)
		l.send(u, violates("aws", "tags", "mandatory", "a", "no tags"), violates("aws", "size", "advisory", "a", "too big"), evaluates("a", ``, `"tags","size"`),
			violates("aws", "tags", "mandatory", "b", "no tags"), evaluates("b", ``, `"tags"`), violates("local", "tags", "mandatory", "b", "not required"))
		check("while the update runs", "size a too big open", "tags a no tags open", "tags b no tags open")
		l.send(u, summary("aws"))
		l.end(u, stacks.Failed)
		check("after the update", "size a too big open", "tags a no tags open", "tags b no tags open")

		l.run(stacks.KindUpdate, evaluates("a", `"tags"`, `"size"`), violates("aws", "size", "advisory", "a", "still too big"))
		check("after a pack reports less", "size a still too big open", "size a too big fixed", "tags a no tags fixed", "tags b no tags open")

		l.run(stacks.KindUpdate, evaluates("c", `"tags"`, ``))
		check("after an update that did not evaluate them", "size a still too big open", "size a too big fixed", "tags a no tags fixed", "tags b no tags open")

		l.run(stacks.KindDestroy, deletes("b"))
		check("after a resource is gone", "size a still too big open", "size a too big fixed", "tags a no tags fixed", "tags b no tags fixed")

		// The stack's own policies stand for all resources, and events can be in any order.
		u, _ = l.begin(stacks.KindUpdate)
		l.send(u, `{"policyAnalyzeStackSummaryEvent":{"policyPackName":"aws","passed":["size"]}}`, summary("aws"), violates("aws", "tags", "mandatory", "a", "no tags"))
		l.end(u, stacks.Succeeded)
		check("after a violation returns", "size a still too big fixed", "size a too big fixed", "tags a no tags open", "tags b no tags fixed")
		page, err := l.results.Issues(t.Context(), l.admin, l.org, results.Query{Size: 1})
		if err != nil || page.Total != 1 || page.List[0].Reopened != 1 || page.List[0].Version != u.Version || page.List[0].Group != "prod" || page.List[0].Stack != "dev" {
			t.Errorf("the open issue is %+v, %v", page, err)
		}
		l.write(func(tx *store.Tx) error { return tx.DeleteEnabledPack("g", "p-aws") })
		l.run(stacks.KindUpdate)
		check("after the pack is disabled", "size a still too big fixed", "size a too big fixed", "tags a no tags fixed", "tags b no tags fixed")
	})
}

// TestNotEvaluated tests that an update without a required pack is marked in its row and in that of its stack, unless it
// had nothing to evaluate.
func TestNotEvaluated(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db)
		check := func(what string, u store.Update, want bool) {
			t.Helper()
			row, err := store.Read(t.Context(), db, func(tx *store.Tx) (store.Estate, error) { return tx.Estate(l.stack.ID) })
			if err != nil || len(u.Unevaluated) > 0 != want || !u.Preview && row.Unevaluated != want {
				t.Errorf("%s: the update lacks %q, the stack's row says %v, want %v, %v", what, u.Unevaluated, row.Unevaluated, want, err)
			}
		}
		u, required := l.begin(stacks.KindUpdate)
		if len(required) != 1 || required[0].PackName != "aws" {
			t.Fatalf("required is %+v", required)
		}
		l.send(u, summary(""))
		check("a summary without the pack", l.end(u, stacks.Succeeded), true)
		u, _ = l.begin(stacks.KindUpdate)
		check("a client without events that fails at once", l.end(u, stacks.Failed), false)
		u, _ = l.begin(stacks.KindUpdate)
		check("a client without events", l.end(u, stacks.Succeeded), true)
		if u := l.run(stacks.KindDestroy); len(u.Unevaluated) > 0 {
			t.Errorf("a destroy, which runs no packs, lacks %q", u.Unevaluated)
		}
		check("an update with the pack", l.run(stacks.KindUpdate), false)

		u, _ = l.begin(stacks.KindUpdate)
		u = l.end(u, stacks.Succeeded)
		check("an update whose summary is late", u, true)
		l.send(u, summary("aws"))
		check("an update whose summary has arrived", l.reload(u), false)
		u, _ = l.begin(stacks.KindPreview)
		l.send(u, summary("other"))
		check("a preview with another pack", l.end(u, stacks.Succeeded), true)
	})
}

// TestSuperseded tests that the late events of an update change nothing that a newer update has found, nor anything of a
// stack that was transferred.
func TestSuperseded(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db)
		old, _ := l.begin(stacks.KindUpdate)
		l.send(old, summary("aws"))
		next := l.sequence
		old = l.end(old, stacks.Failed)
		newer := l.run(stacks.KindUpdate, violates("aws", "tags", "mandatory", "a", "no tags"), evaluates("a", ``, `"tags"`),
			violates("aws", "tags", "mandatory", "b", "no tags"), evaluates("b", ``, `"tags"`))
		l.run(stacks.KindUpdate, evaluates("b", `"tags"`, ``))
		l.sequence = next
		l.send(old, evaluates("a", `"tags"`, ``), violates("aws", "tags", "mandatory", "b", "no tags"), violates("aws", "size", "advisory", "c", "too big"),
			`{"policyAnalyzeStackSummaryEvent":{"policyPackName":"aws","passed":["tags"]}}`)
		if diff := cmp.Diff([]string{"tags a no tags open", "tags b no tags fixed"}, l.issues()); diff != "" {
			t.Errorf("after late events, the issues are (-want +got):\n%s", diff)
		}
		standings := func() []store.PolicyStanding {
			t.Helper()
			list, err := store.Read(t.Context(), db, func(tx *store.Tx) ([]store.PolicyStanding, error) { return tx.StandingsOfStack(l.stack.ID) })
			l.must(err)
			return list
		}
		if list := standings(); len(list) != 1 || list[0].Version != newer.Version+1 {
			t.Errorf("after late events, the results are %+v", list)
		}
		if r, err := l.results.Of(t.Context(), old, 10); err != nil || len(r.Violations) != 2 {
			t.Errorf("the update keeps %+v, %v", r, err)
		}

		last, _ := l.begin(stacks.KindUpdate)
		l.send(last, summary("aws"))
		last = l.end(last, stacks.Succeeded)
		l.write(func(tx *store.Tx) error {
			if err := tx.InsertOrganization(store.Organization{ID: "rival", Name: "rival"}); err != nil {
				return err
			}
			return tx.MoveStack(l.stack.ID, "rival")
		})
		l.send(l.reload(last), violates("aws", "tags", "mandatory", "a", "no tags"))
		issues, err := store.Read(t.Context(), db, func(tx *store.Tx) ([]store.PolicyIssue, error) {
			return tx.IssuesAt(l.stack.ID, policies.Preventative, []string{urn("a")}, []string{"none"})
		})
		if err != nil || len(issues) > 0 || len(standings()) > 0 {
			t.Errorf("after late events of a transferred stack, the issues are %+v, %v, and the results %+v", issues, err, standings())
		}
	})
}

// TestManyViolations tests that a pack which floods its results neither fills the database nor closes issues that were
// left out.
func TestManyViolations(t *testing.T) {
	db := storetest.SQLite(t)
	l := newLab(t, db)
	l.run(stacks.KindUpdate, violates("aws", "tags", "mandatory", "z", "no tags"))
	u, _ := l.begin(stacks.KindUpdate)
	var events []string
	for range 1100 {
		events = append(events, violates("aws", "tags", "mandatory", "a", strings.Repeat("x", 10)))
	}
	l.send(u, events...)
	l.send(u, `{"policyAnalyzeStackSummaryEvent":{"policyPackName":"aws","failed":["tags"]}}`, summary("aws"))
	u = l.end(u, stacks.Failed)
	r, err := l.results.Of(t.Context(), u, 2000)
	if err != nil || len(r.Violations) != 1000 || r.Mandatory != 1100 || r.Packs[0].Omitted != 100 {
		t.Errorf("%d violations are kept of %d, %v", len(r.Violations), r.Mandatory, err)
	}
	if diff := cmp.Diff([]string{"tags a xxxxxxxxxx open", "tags z no tags open"}, l.issues()); diff != "" {
		t.Errorf("the issues are (-want +got):\n%s", diff)
	}
}

// TestReport tests what a preview shows: violations that stop it first, and policies without a result.
func TestReport(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db)
		u := l.run(stacks.KindPreview, violates("aws", "size", "advisory", "a", "<b>big</b>"), violates("aws", "size", "mandatory", "b", "big"), evaluates("a", ``, `"size"`))
		r, err := l.results.Of(t.Context(), u, 1)
		if err != nil || r.Mandatory != 1 || r.Advisory != 1 || len(r.Violations) != 1 || !results.Blocks(r.Violations[0]) {
			t.Errorf("the report is %+v, %v", r, err)
		}
		if diff := cmp.Diff([]results.PolicyName{{Pack: "aws", Policy: "tags"}}, r.Unknown); diff != "" {
			t.Errorf("the policies without a result (-want +got):\n%s", diff)
		}
	})
}

// TestCompliance tests the scores of stacks, and of packs by severity.
func TestCompliance(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db)
		other, err := l.stacks.Create(t.Context(), l.admin, stacks.NewStack{Org: l.org, Project: "proj", Name: "other"})
		l.must(err)
		l.run(stacks.KindUpdate, violates("aws", "tags", "mandatory", "a", "m"), evaluates("a", `"size"`, `"tags"`), evaluates("b", `"size","tags"`, ``))
		l.must(db.Write(t.Context(), other.Scope(), func(tx *store.Tx) error {
			return l.results.Evaluated(tx, other, results.Evaluation{ID: "e", Version: 1, Packs: []results.EvaluatedPack{
				{PackID: "p-aws", Pack: "aws", Number: 1, Tag: "1.0.0", Group: "audit", Problem: "the pack did not start"},
			}})
		}))
		for entity, want := range map[string]results.Matrix{
			results.ByStack: {
				Columns: []string{"audit/aws", "prod/aws"},
				Rows:    []results.Row{{Name: "proj/dev", Scores: []int{-1, 50}}, {Name: "proj/other", Scores: []int{-2, -1}}},
			},
			results.BySeverity: {
				Columns: []string{"critical", "high", "medium", "low"}, Rows: []results.Row{{Name: "prod/aws", Scores: []int{-1, 0, -1, 100}}},
			},
			results.ByAccount: {},
		} {
			got, err := l.results.Compliance(t.Context(), l.admin, l.org, entity, "", 0)
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("the compliance by %s, %v (-want +got):\n%s", entity, err, diff)
			}
		}
		page, err := l.results.Compliance(t.Context(), l.admin, l.org, results.ByStack, "", 1)
		if err != nil || page.Next != "proj/dev" || len(page.Rows) != 1 {
			t.Errorf("the first page is %+v, %v", page, err)
		}
		if page, err = l.results.Compliance(t.Context(), l.admin, l.org, results.ByStack, page.Next, 1); err != nil || page.Next != "" || page.Rows[0].Name != "proj/other" {
			t.Errorf("the last page is %+v, %v", page, err)
		}
		totals, err := l.results.Totals(t.Context(), l.admin, l.org)
		if err != nil || totals != (results.Totals{Policies: 2, PoliciesWithIssues: 1, Resources: 0, ResourcesWithIssues: 1}) {
			t.Errorf("the totals are %+v, %v", totals, err)
		}
	})
}
