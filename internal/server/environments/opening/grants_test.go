package opening

import (
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// jobOf adds a stack and a deployment of what its settings name, and returns its job, for which no user is responsible.
func (s *site) jobOf(stack string) identity.Principal {
	s.t.Helper()
	s.write(func(tx *store.Tx) error {
		if err := tx.InsertStack(store.Stack{ID: stack, OrgID: s.acme.ID, Project: "shop", Name: stack, CreatedAt: tx.Now()}); err != nil {
			return err
		}
		return tx.InsertDeployment(store.Deployment{ID: "of-" + stack, OrgID: s.acme.ID, StackID: stack, Version: 1, Operation: "update", Trust: store.TrustOwn, Configuration: "{}"})
	})
	return identity.Principal{Kind: identity.KindJob, Org: s.acme, StackID: stack, JobID: "job", DeploymentID: "of-" + stack, TokenID: s.p("ann").TokenID}
}

// grant lets jobs of the stack shop/web open an environment.
func (s *site) grant(e store.Environment) (end func()) {
	s.t.Helper()
	all := grants.New(s.db)
	g := must.Get(all.Add(s.t.Context(), s.p("ann"), grants.OfEnvironment(e), grants.Target{Stack: "shop/web"}, false))(s.t)
	return func() { must.OK(s.t, all.Remove(s.t.Context(), grants.OfEnvironment(e), g.ID)) }
}

// TestGrantsAndImports checks that a grant of an environment covers none of its imports, and that one of an import does not
// cover what imports it.
func TestGrantsAndImports(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		base := s.add("ann", s.acme, "base", "of: base")
		app := s.add("ann", s.acme, "app", "- app/base\n")
		job := s.jobOf("web")
		nested := wire.Ask{Environment: &wire.EnvironmentAsk{Name: "app/base", Importer: "app/app"}}
		// A stack's configuration is a definition without a name, which gives no rights; a named one is granted itself.
		roots := map[string]Root{
			"anonymous": s.root(s.acme, script{Asks: []wire.Ask{environmentAsk("app/app"), nested}}),
			"named":     {Org: s.acme, Environment: &app, Revision: 2, Definition: s.root(s.acme, script{Asks: []wire.Ask{environmentAsk("app/base")}}).Definition},
		}
		check := func(with string, want map[string][]string) {
			t.Helper()
			for kind, root := range roots {
				opened := must.Get(s.Open(t.Context(), job, root, time.Hour))(t)
				values := must.Get(s.Session(t.Context(), job, s.acme.ID, name(root.Environment), opened.ID))(t)
				answers := values.Properties["answers"].Value.([]wire.Value)
				for i, v := range answers {
					got := "open"
					if text := v.Value.(string); strings.Contains(text, "may not open environment acme/app/") {
						got = "refused"
					} else if !strings.Contains(text, `"environment"`) {
						t.Errorf("%s: the evaluator was answered %s", kind, text)
					}
					if got != want[kind][i] {
						t.Errorf("%s, %s, import %d: %s, want %s", with, kind, i, got, want[kind][i])
					}
				}
			}
		}
		check("no grant", map[string][]string{"anonymous": {"refused", "refused"}, "named": {"refused"}})
		end := s.grant(app)
		check("grant of app", map[string][]string{"anonymous": {"open", "refused"}, "named": {"refused"}})
		s.grant(base)
		check("both grants", map[string][]string{"anonymous": {"open", "open"}, "named": {"open"}})
		end()
		check("grant of base", map[string][]string{"anonymous": {"refused", "open"}, "named": {"open"}})
		if _, err := s.envs.Find(t.Context(), job, store.OpenEnvironment, "acme", "app", "app"); fault.KindOf(err) != fault.KindForbidden {
			t.Errorf("the named environment: %v", err)
		}
		other := s.jobOf("other")
		if _, err := s.envs.Find(t.Context(), other, store.ReadEnvironment, "acme", "app", "base"); fault.KindOf(err) != fault.KindForbidden {
			t.Errorf("the job of another stack: %v", err)
		}
		list, err := store.Read(t.Context(), db, func(tx *store.Tx) ([]store.AuditEntry, error) {
			return tx.AuditEntries(store.AuditFilter{OrgID: s.acme.ID, Action: string(audit.EnvironmentOpened), Limit: 100})
		})
		must.OK(t, err)
		var subjects []string
		for _, e := range list {
			subjects = append(subjects, e.Subject)
		}
		slices.Sort(subjects)
		if want := []string{"acme/app/app", "acme/app/base"}; !slices.Equal(subjects, want) { // those of one deployment share an entry
			t.Errorf("the audit log has openings of %q, want %q", subjects, want)
		}
	})
}

// TestEvaluationsOpenTheEnvironmentsOfTheirGroup opens environments with the token of a policy evaluation.
func TestEvaluationsOpenTheEnvironmentsOfTheirGroup(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		listed := s.add("ann", s.acme, "listed", "any: text")
		s.add("ann", s.acme, "other", "any: text")
		s.jobOf("web")
		s.write(func(tx *store.Tx) error {
			for _, err := range []error{
				tx.InsertPolicyGroup(store.PolicyGroup{ID: "g", OrgID: s.acme.ID, Name: "audit", EntityType: "stacks", Mode: "audit", AllStacks: true}),
				tx.InsertPolicyGroup(store.PolicyGroup{ID: "g2", OrgID: s.acme.ID, Name: "second", EntityType: "stacks", Mode: "audit"}),
				tx.InsertPolicyPack(store.PolicyPack{ID: "k", OrgID: s.acme.ID, Name: "lab"}),
				tx.InsertPackVersion(store.PolicyPackVersion{ID: "v", PackID: "k", Number: 1, Status: store.PackComplete, Blob: "b"}),
				tx.SaveEnabledPack(store.EnabledPack{GroupID: "g", PackID: "k", VersionID: "v", Environments: []string{"app/listed"}}),
				tx.SaveEnabledPack(store.EnabledPack{GroupID: "g2", PackID: "k", VersionID: "v"}),
				tx.SetPackEnvironments("g", "k", []string{listed.ID}),
			} {
				if err != nil {
					return err
				}
			}
			for id, group := range map[string]string{"evaluation": "g", "another": "g2"} {
				_, err := tx.Exec(`INSERT INTO policy_evaluations (id, org_id, stack_id, group_id, cause, requested_by, status, queued_at, modified_at)
					VALUES ($1, $2, 'web', $3, 'update', '', 'running', 1, 1)`, id, s.acme.ID, group)
				if err != nil {
					return err
				}
			}
			return nil
		})
		may := func(evaluation, environment string) bool {
			t.Helper()
			p := identity.Principal{Kind: identity.KindJob, Org: s.acme, StackID: "web", JobID: evaluation, Scope: identity.EvaluationScope("web")}
			_, err := s.envs.Find(t.Context(), p, store.OpenEnvironment, "acme", "app", environment)
			if err != nil && (fault.KindOf(err) != fault.KindForbidden || !strings.Contains(err.Error(), "this policy evaluation may not open environment acme/app/")) {
				t.Errorf("%s of %s: %v", environment, evaluation, err)
			}
			if _, err := s.envs.Find(t.Context(), p, store.WriteEnvironment, "acme", "app", environment); fault.KindOf(err) != fault.KindForbidden {
				t.Errorf("%s writes %s: %v", evaluation, environment, err)
			}
			return err == nil
		}
		if !may("evaluation", "listed") || may("evaluation", "other") || may("evaluation", "none") || may("another", "listed") || may("of-web", "listed") {
			t.Error("evaluations do not open exactly the environments of their group's packs")
		}
		// Errors of the definition are not shown: no server masks the log of an evaluation.
		p := identity.Principal{Kind: identity.KindJob, Org: s.acme, StackID: "web", JobID: "evaluation", TokenID: s.p("ann").TokenID}
		failing := s.root(s.acme, script{Fails: true, Asks: []wire.Ask{environmentAsk("app/listed"), {Decrypt: &wire.DecryptAsk{
			Environment: "app/listed", Ciphertext: must.Get(s.envs.Key(t.Context(), listed))(t).Encrypt([]byte("planted-in-error")),
		}}}})
		if _, err := s.Open(t.Context(), p, failing, time.Hour); fault.KindOf(err) != fault.KindInvalid || strings.Contains(err.Error(), "an error of the definition") {
			t.Errorf("a failing evaluation: %v", err)
		}
		must.OK(t, s.envs.Delete(t.Context(), s.p("ann"), listed))
		s.add("ann", s.acme, "listed", "any: text")
		if may("evaluation", "listed") {
			t.Error("an environment with the name of a deleted one is opened")
		}
	})
}
