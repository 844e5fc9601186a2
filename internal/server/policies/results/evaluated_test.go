package results_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/exceptions"
	"workflowagent/internal/server/policies/findings"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// listen adds a webhook of the organization that receives the events of policies.
func (l *lab) listen() {
	l.Helper()
	l.write(func(tx *store.Tx) error {
		return tx.InsertWebhook(store.Webhook{ID: "h", OrgID: l.org.ID, Name: "h", URL: "https://example.com", Format: "raw", Active: true, Groups: []string{"policies"}})
	})
}

// recorded returns the recorded events, as "kind pack policy message …" or "kind packs".
func (l *lab) recorded() []string {
	l.Helper()
	list, err := store.Read(l.Context(), l.db, func(tx *store.Tx) ([]store.WebhookDelivery, error) { return tx.Deliveries("h", 100) })
	l.must(err)
	out := []string{}
	for _, d := range list {
		var e struct {
			Kind           string
			IsPreview      bool
			UpdateURL      string
			ViolationCount int
			Violations     []struct{ PolicyPackName, PolicyName, EnforcementLevel, Message string }
			PolicyPacks    []string
		}
		l.must(json.Unmarshal([]byte(d.Payload), &e))
		if !strings.HasPrefix(e.UpdateURL, "https://app.example.com/acme/proj/dev/") {
			l.Errorf("the event leads to %q", e.UpdateURL)
		}
		text := fmt.Sprint(e.Kind, " ", e.IsPreview)
		for _, v := range e.Violations {
			text += " " + v.PolicyPackName + " " + v.PolicyName + " " + v.EnforcementLevel + " " + v.Message
		}
		out = append(out, strings.TrimSpace(text+" "+strings.Join(e.PolicyPacks, ",")))
	}
	slices.Sort(out)
	return out
}

// TestWebhooksAndMetrics tests that the end of an update is at most one event per level, without excepted violations.
func TestWebhooksAndMetrics(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db)
		registry := prometheus.NewRegistry()
		registry.MustRegister(l.results.Metrics()...)
		l.listen()
		l.except(exceptions.New{Pack: "aws", Entries: entry("tags", "c"), Reason: "r"})
		l.run(stacks.KindPreview, violates("aws", "tags", "mandatory", "a", "one"), violates("aws", "tags", "mandatory", "b", "two"), violates("aws", "size", "advisory", "a", "big"),
			violates("aws", "tags", "mandatory", "c", "excepted", "EXC-1"))
		u, _ := l.begin(stacks.KindUpdate)
		l.send(u, summary(""))
		l.end(u, stacks.Succeeded)
		l.run(stacks.KindUpdate) // nothing to report
		if diff := cmp.Diff([]string{"preview true aws size advisory big", "preview true aws tags mandatory one aws tags mandatory two", "update false aws"}, l.recorded()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		families, err := registry.Gather()
		l.must(err)
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := f.GetName()
				for _, label := range m.GetLabel() {
					name += " " + label.GetValue()
				}
				got[name] = m.GetCounter().GetValue()
			}
		}
		const violations = "workflow_server_policy_violations_total "
		want := map[string]float64{violations + "mandatory": 2, violations + "advisory": 1, violations + "excepted": 1, "workflow_server_policy_unevaluated_total": 1}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
	})
}

// TestEvaluations tests that issues of an audit group open and close with evaluations, in addition to those of updates, and that
// only violations that were not open before are events.
func TestEvaluations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db)
		l.listen()
		l.except(exceptions.New{Pack: "aws", Entries: entry("tags", "c"), Reason: "r"})
		evaluate := func(id string, list ...findings.Violation) {
			t.Helper()
			l.must(db.Write(t.Context(), l.stack.Scope(), func(tx *store.Tx) error {
				return l.results.Evaluated(tx, l.stack, results.Evaluation{ID: id, Version: 3, Packs: []results.EvaluatedPack{{PackID: "p-aws", Pack: "aws", Number: 1, Tag: "1.0.0", Group: "audit", Violations: list}}})
			}))
		}
		found := func(name string) findings.Violation {
			return findings.Violation{Pack: "aws", Policy: "tags", Level: findings.Mandatory, URN: urn(name), Message: "m"}
		}
		evaluate("e1", found("a"), found("b"), found("c"))
		evaluate("e2", found("a"), found("c"))
		if diff := cmp.Diff([]string{"tags a m open", "tags b m fixed", "tags c m by_design"}, l.issues()); diff != "" {
			t.Errorf("issues (-want +got):\n%s", diff)
		}
		// An update has its own issues of the same pack, and closes only these.
		l.run(stacks.KindUpdate, evaluates("a", `"tags"`, ``))
		evaluate("e3", found("a"), found("b"), found("c"))
		if diff := cmp.Diff([]string{"tags a m open", "tags b m open", "tags c m by_design"}, l.issues()); diff != "" {
			t.Errorf("issues (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"policy_evaluation false aws tags mandatory m", "policy_evaluation false aws tags mandatory m aws tags mandatory m"}, l.recorded()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// TestIncompleteEvaluations tests that a pack whose report is not complete closes no issue, and that it is not compliant
// because the report lacks its violations.
func TestIncompleteEvaluations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db)
		l.audit()
		evaluate := func(id string, incomplete bool, names ...string) {
			t.Helper()
			pack := results.EvaluatedPack{PackID: "p-aws", Pack: "aws", Number: 1, Tag: "1.0.0", Group: "audit", Incomplete: incomplete}
			for _, name := range names {
				pack.Violations = append(pack.Violations, findings.Violation{Pack: "aws", Policy: "tags", Level: findings.Mandatory, URN: urn(name), Message: "m"})
			}
			l.must(db.Write(t.Context(), l.stack.Scope(), func(tx *store.Tx) error {
				return l.results.Evaluated(tx, l.stack, results.Evaluation{ID: id, Version: 3, Packs: []results.EvaluatedPack{pack}})
			}))
		}
		both := []string{"tags a m open", "tags b m open"}
		evaluate("e1", false, "a", "b")
		for id, names := range map[string][]string{"e2": {"a"}, "e3": nil} {
			evaluate(id, true, names...)
			if diff := cmp.Diff(both, l.issues()); diff != "" {
				t.Errorf("issues after %s (-want +got):\n%s", id, diff)
			}
		}
		evaluate("e4", true)
		if list := l.standings(); len(list) != 1 || results.Score(list[0]) != results.ScoreProblem {
			t.Errorf("standings %+v", list)
		}
		evaluate("e5", false)
		if diff := cmp.Diff([]string{"tags a m fixed", "tags b m fixed"}, l.issues()); diff != "" {
			t.Errorf("issues (-want +got):\n%s", diff)
		}
	})
}

// TestEndOfAudits tests that issues and results end when the stack leaves the audit group, or the group disables the pack.
func TestEndOfAudits(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db)
		for name, leave := range map[string]func(tx *store.Tx) error{
			"left": func(tx *store.Tx) error {
				return tx.SaveGroupStack(store.GroupStack{GroupID: "a", StackID: l.stack.ID})
			},
			"disabled": func(tx *store.Tx) error { return tx.DeleteEnabledPack("a", "p-aws") },
			"deleted":  func(tx *store.Tx) error { return tx.DeletePolicyGroup("a") },
		} {
			l.audit()
			found := []findings.Violation{{Pack: "aws", Policy: "tags", Level: findings.Mandatory, URN: urn("a"), Message: "m"}}
			l.write(func(tx *store.Tx) error {
				err := l.results.Evaluated(tx, l.stack, results.Evaluation{ID: "e " + name, Packs: []results.EvaluatedPack{{PackID: "p-aws", Pack: "aws", Number: 1, Group: "audit", Violations: found}}})
				return errors.Join(err, tx.EndAudits(l.org.ID, results.NoLonger))
			})
			if diff := cmp.Diff([]string{"tags a m open"}, l.issues()); diff != "" || len(l.standings()) != 1 {
				t.Errorf("%s: issues before (-want +got):\n%s", name, diff)
			}
			l.write(func(tx *store.Tx) error { return errors.Join(leave(tx), tx.EndAudits(l.org.ID, results.NoLonger)) })
			if diff := cmp.Diff([]string{"tags a m fixed"}, l.issues()); diff != "" || len(l.standings()) != 0 {
				t.Errorf("%s: issues after (-want +got):\n%s", name, diff)
			}
		}
	})
}

// audit enables the pack in the audit group "audit" of all stacks.
func (l *lab) audit() {
	l.Helper()
	l.write(func(tx *store.Tx) error {
		_, err := tx.PolicyGroup("a")
		if errors.Is(err, store.ErrNotFound) {
			err = tx.InsertPolicyGroup(store.PolicyGroup{ID: "a", OrgID: l.org.ID, Name: "audit", EntityType: policies.Stacks, Mode: policies.Audit, AllStacks: true})
		}
		return errors.Join(err, tx.DeleteGroupStack("a", l.stack.ID), tx.SaveEnabledPack(store.EnabledPack{GroupID: "a", PackID: "p-aws", VersionID: "v-aws"}))
	})
}

func (l *lab) standings() []store.PolicyStanding {
	l.Helper()
	list, err := store.Read(l.Context(), l.db, func(tx *store.Tx) ([]store.PolicyStanding, error) { return tx.StandingsOfStack(l.stack.ID) })
	l.must(err)
	return list
}
