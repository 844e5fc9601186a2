package policies_test

import (
	"net/http"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// evaluated adds an evaluation of a stack for the group audit.
func (f *fixture) evaluated(id, stack string, change func(e *store.Evaluation)) {
	f.t.Helper()
	f.write(func(tx *store.Tx) error {
		st, err := tx.StackID(f.org.ID, "web", stack)
		if err != nil {
			return err
		}
		g, err := tx.PolicyGroupByName(f.org.ID, "audit")
		if err != nil {
			return err
		}
		if _, err := tx.Exec("INSERT INTO policy_evaluations (id, org_id, stack_id, group_id, cause, status, queued_at, modified_at) VALUES ($1, $2, $3, $4, 'update', 'succeeded', $5, 0)",
			id, f.org.ID, st, g.ID, tx.Now()); err != nil {
			return err
		}
		e, err := tx.Evaluation(id)
		if err != nil {
			return err
		}
		e.EndedAt, e.ReportedAt = tx.Now(), tx.Now()
		change(&e)
		return tx.SaveEvaluation(e)
	})
}

// TestEvaluations lists evaluations with hostile texts, shows one, requests others, and hides those of stacks that a member
// may not read.
func TestEvaluations(t *testing.T) {
	consoletest.Each(t, func(t *testing.T, s *consoletest.Server) {
		f := newFixture(t, s)
		const list, groups = base + "/evaluations", base + "/groups"
		f.get(f.member, list, "No stack that you can see was evaluated")
		f.post(f.admin, groups, http.StatusSeeOther, "name", "audit", "mode", "audit")
		const audit = groups + "/audit"
		f.post(f.admin, audit+"/stacks", http.StatusSeeOther, "stack", "web/prod", "action", "add")
		f.post(f.admin, audit+"/packs/aws", http.StatusSeeOther, "version", "2.0.0", "do", "save")
		f.shows(list, f.post(f.admin, list, http.StatusUnprocessableEntity, "stack", "web/prod"), "Nothing was queued")
		f.shows(list, f.post(f.admin, list, http.StatusUnprocessableEntity, "stack", "web/none"), "web/none", `id="evaluate-stack-problem"`)
		f.post(f.admin, list, http.StatusUnprocessableEntity, "group", "default-policy-group")

		f.write(func(tx *store.Tx) error {
			_, err := tx.Exec("UPDATE stacks SET state_blob = 'states/x' WHERE name = 'prod'")
			return err
		})
		if p := f.post(f.member, list, http.StatusSeeOther, "stack", "web/prod"); p.Location() != list+"?stack=web%2Fprod" {
			t.Errorf("after a request: %q", p.Location())
		}
		f.get(f.member, list, "Queued 1 evaluation.", "queued web/ prod waits for an agent audit ann request")
		f.shows(list, f.post(f.member, list, http.StatusUnprocessableEntity, "group", "audit"), "nly administrators")

		f.evaluated("e-failed", "dev", func(e *store.Evaluation) {
			e.Status, e.Message, e.AgentHostname, e.Version = workflow.StatusFailed, hostile, "agent-"+hostile, 7
			e.Packs = []store.EvaluatedPack{{Name: "aws", Number: 2, Tag: "2.0.0"}}
		})
		f.evaluated("e-found", "dev", func(e *store.Evaluation) { e.Violations = 3 })
		f.get(f.member, list, "failed web/ dev", "3 violations audit update", "Policies 3")
		p := f.get(f.member, list+"?state=failed", "Policies 1")
		f.hides(list, p, "3 violations")
		p = f.get(f.member, list+"?state=unfinished&group=audit&stack=web/prod", "Policies 1", "waits for an agent")
		f.hides(list, p, "e-failed")
		f.get(f.member, list+"?state=failed&stack=web/prod", "No evaluation matches")
		f.get(f.member, list+"?state=none", "state of policy evaluations must be")
		f.get(f.member, list+"?after=x", "page of policy evaluations does not exist")

		const one = "/acme/web/dev/evaluations/e-failed"
		f.get(f.member, one, "failed web/ dev evaluation", "because of: update", "version 7", "with aws 2.0.0", one+"/log/raw", "Evaluate now")
		f.get(f.member, "/acme/web/dev/evaluations/e-found", "See the issues")
		if p := f.member.Get("/acme/web/prod/evaluations/e-failed"); p.Status != http.StatusNotFound {
			t.Errorf("an evaluation of another stack: status %d", p.Status)
		}
		if p := f.member.Get(one + "/log/raw"); p.Status != http.StatusOK {
			t.Errorf("the log: status %d: %s", p.Status, p.Text())
		}

		f.API(http.MethodPatch, "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}, nil)
		f.API(http.MethodPut, "/api/stacks/acme/web/prod/collaborators/ann", map[string]any{"permission": 101}, nil)
		p = f.get(f.member, list, "web/ prod", "Policies 1", `<option value="web/prod">`)
		f.hides(list, p, "web/dev", "e-failed")
		for _, path := range []string{one, one + "/log/raw"} {
			if p := f.member.Get(path); p.Status != http.StatusNotFound {
				t.Errorf("%s of a stack that the member may not see: status %d", path, p.Status)
			}
		}
		f.post(f.member, list, http.StatusUnprocessableEntity, "stack", "web/prod")
	})
}

// TestInterval sets the interval of evaluations of a group.
func TestInterval(t *testing.T) {
	f := newFixture(t, consoletest.New(t))
	const groups, audit = base + "/groups", base + "/groups/audit"
	f.post(f.admin, groups, http.StatusSeeOther, "name", "audit", "mode", "audit")
	f.get(f.admin, audit, "evaluated after changes and every 24 hours", `id="hours" name="hours" type="text" value="24"`)
	for _, hours := range []string{"-1", "721", "often"} {
		f.shows(hours, f.post(f.admin, audit+"/edit", http.StatusUnprocessableEntity, "name", "audit", "pool", "", "hours", hours), "must be a whole number of hours", `id="hours-problem"`, `value="`+hours+`"`)
	}
	f.post(f.admin, audit+"/edit", http.StatusSeeOther, "name", "audit", "pool", "", "hours", "6")
	f.get(f.member, audit, "every 6 hours")
	var got struct{ EvaluationHours *int64 }
	f.API(http.MethodGet, "/api/orgs/acme/policygroups/audit", nil, &got)
	if got.EvaluationHours == nil || *got.EvaluationHours != 6 {
		t.Errorf("the API says %v", got.EvaluationHours)
	}
	f.API(http.MethodPatch, "/api/orgs/acme/policygroups/audit", map[string]any{"evaluationHours": 0}, nil)
	f.get(f.member, audit, "evaluated after changes only")
	f.get(f.admin, "/acme/-/activity?part=access", "interval of evaluations 6 hours", "interval of evaluations never")
}
