package opening

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/esc/wire"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// TestVariablesOfAJob opens environments for the commands of a job, with the rights of the job's own token.
func TestVariablesOfAJob(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		s.write(func(tx *store.Tx) error {
			if err := tx.InsertStack(store.Stack{ID: "st", OrgID: s.acme.ID, Project: "shop", Name: "dev", CreatedAt: tx.Now()}); err != nil {
				return err
			}
			return tx.InsertDeployment(store.Deployment{ID: "dep", OrgID: s.acme.ID, StackID: "st", Version: 1, Operation: "update", Configuration: "{}"})
		})
		// A job of ann, who administers the organization, and one without a requester.
		for job, user := range map[string]string{"by-ann": s.p("ann").User.ID, "by-none": ""} {
			_, hash := identity.NewToken()
			s.write(func(tx *store.Tx) error {
				return tx.InsertToken(store.Token{
					ID: "token-" + job, Hash: hash, Kind: store.JobToken, OrgID: s.acme.ID, JobID: job, DeploymentID: "dep", StackID: "st", UserID: user,
					CreatedAt: tx.Now(), Scope: identity.JobScope("st", "update", workflow.Options{}, user != "").String(),
				})
			})
		}
		s.add("ann", s.acme, "dev", "any: text")
		p := must.Get(s.ids.OfJob(t.Context(), "by-ann"))(t)
		if _, err := s.ids.OfJob(t.Context(), "absent"); err == nil {
			t.Error("a job without a token has rights")
		}
		variables := func(sc script) protocol.JobEnvironments {
			t.Helper()
			h := s.hostFor(*p, s.root(s.acme, sc), store.OpenEnvironment)
			return must.Get(s.variablesOf(t.Context(), h))(t)
		}
		got := variables(script{
			Asks: []wire.Ask{environmentAsk("app/dev")},
			Values: wire.Values{
				"password": {Value: "planted-but-not-given", Secret: true},
				"environmentVariables": {Value: map[string]wire.Value{
					"REGION": {Value: "eu-west"}, "PORT": {Value: json.Number("8080")}, "ON": {Value: true}, "NOTHING": {},
					"PASSWORD": {Value: "planted-secret", Secret: true}, "LIST": {Value: []wire.Value{{Value: "x"}}},
				}},
				"files": {Secret: true, Value: map[string]wire.Value{"KEY": {Value: "planted-file"}}},
			},
		})
		want := protocol.JobEnvironments{
			Opened: []string{"app/dev, revision 2"},
			Variables: []protocol.JobEnvironment{
				{Name: "NOTHING"},
				{Name: "ON", Value: "true"},
				{Name: "PASSWORD", Value: "planted-secret", Secret: true},
				{Name: "PORT", Value: "8080"},
				{Name: "REGION", Value: "eu-west"},
			},
			Files: []protocol.JobEnvironment{{Name: "KEY", Value: "planted-file", Secret: true}},
		}
		if string(must.Get(json.Marshal(got))(t)) != string(must.Get(json.Marshal(want))(t)) {
			t.Errorf("the job gets %+v, want %+v", got, want)
		}
		masked := must.Get(s.OpenedSecrets(t.Context(), *p, "by-ann", 0))(t).Secrets
		slices.Sort(masked)
		if want := []string{"planted-file", "planted-secret"}; !slices.Equal(masked, want) {
			t.Errorf("the runner masks %q, want %q", masked, want)
		}
		if got := variables(script{Fails: true}); got.Problem != "an error of the definition" || got.Variables != nil {
			t.Errorf("a failed evaluation gives %+v", got)
		}
		large := wire.Value{Value: map[string]wire.Value{"A": {Value: strings.Repeat("x", maxVariables)}}}
		if _, err := textsOf(large, maxVariables, "environmentVariables"); err == nil || !strings.Contains(err.Error(), "environmentVariables of the environments have 1.0 MiB in all") {
			t.Errorf("large variables: %v", err)
		}
		// The tests' evaluator does not import, so that the rights are those of its questions.
		for job, may := range map[string]bool{"by-ann": true, "by-none": false} {
			p := must.Get(s.ids.OfJob(t.Context(), job))(t)
			h := s.hostFor(*p, s.root(s.acme, script{}), store.OpenEnvironment)
			if answer := must.Get(h.Environment(t.Context(), wire.EnvironmentAsk{Name: "app/dev", Root: true}))(t); (answer.Error == "") != may {
				t.Errorf("the job %s is answered %+v", job, answer)
			}
		}
	})
}
