package deployments_test

import (
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/workflow"
)

const withEnvironments = `{"vcs":{"provider":"github","repository":"o/r"},"sourceContext":{"git":{"branch":"main"}},
	"operationContext":{"preRunCommands":["make"],"environments":["app/base","app/prod@stable"]}}`

// TestEnvironmentsOfSettings checks which jobs open the environments that settings name: no job of a fork does.
func TestEnvironmentsOfSettings(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := &forge{}
		p, st := newForgePlant(t, db, f, withEnvironments)
		branch := preview(7)
		branch.Checkout.Fork = false
		push := deployments.Trigger{Operation: workflow.OperationUpdate, Initiator: vcs.InitiatorPush, Checkout: store.VCSCheckout{CommitID: commit, Ref: "refs/heads/main"}}
		elsewhere := branch
		elsewhere.Checkout.CommitID, elsewhere.Checkout.Ref = "", "refs/changes/1/2/3"
		for _, tt := range []struct {
			name   string
			create func() store.Deployment
			want   []string
		}{
			{"a push", func() store.Deployment { return p.createFor(st, push) }, []string{"app/base", "app/prod@stable"}},
			{"a pull request from a branch", func() store.Deployment { return p.createFor(st, branch) }, []string{"app/base", "app/prod@stable"}},
			{"a pull request from elsewhere", func() store.Deployment { return p.createFor(st, elsewhere) }, nil},
			{"a fork", func() store.Deployment { return p.createFor(st, preview(7)) }, nil},
			{"a request", func() store.Deployment {
				d, err := p.service.Create(t.Context(), p.user, st, asked(t, `{"operation":"update","operationContext":{"environments":["app/other"]}}`), "api")
				p.must(err)
				return d
			}, []string{"app/other"}},
		} {
			d := tt.create()
			for _, what := range []string{tt.name, tt.name + ", again"} {
				c := p.poll("a")
				p.must(p.heartbeat(c, "starting"))
				def, err := p.service.Definition(t.Context(), runner(c), c.Job.ID)
				p.must(err)
				if !slices.Equal(def.Deployment.Environments, tt.want) {
					t.Errorf("%s: the job opens %q, want %q", what, def.Deployment.Environments, tt.want)
				}
				at := slices.IndexFunc(def.Steps, func(s workflow.Step) bool { return s.Run == workflow.RunEnvironments })
				if (at >= 0) != (tt.want != nil) || def.Deployment.OpensEnvironments != (tt.want != nil) || len(def.Steps) != len(c.Job.Steps) {
					t.Errorf("%s: the steps are %+v", what, def.Steps)
				}
				if at >= 0 && (def.Steps[at-1].Run != workflow.RunSourceGit || def.Steps[at+1].Run != workflow.RunDependencies) {
					t.Errorf("%s: the environments are opened at another time: %+v", what, def.Steps)
				}
				noted := slices.ContainsFunc(p.job(d.ID).Notes, func(n store.Note) bool { return strings.Contains(n.Text, "that of a fork") })
				if noted != (tt.want == nil) {
					t.Errorf("%s: the notes are %+v", what, p.job(d.ID).Notes)
				}
				names, err := p.service.Environments(t.Context(), runner(c), c.Job.ID)
				if tt.want != nil && (err != nil || !slices.Equal(names, tt.want)) || tt.want == nil && fault.KindOf(err) != fault.KindInvalid {
					t.Errorf("%s: the server opens %q, %v", what, names, err)
				}
				p.must(p.result(c, workflow.StatusFailed))
				if _, err := p.service.Environments(t.Context(), runner(c), c.Job.ID); fault.KindOf(err) != fault.KindGone {
					t.Errorf("%s: after the job's end: %v", what, err)
				}
				if !strings.HasSuffix(what, "again") {
					_, err = p.again(st, d.ID)
					p.must(err)
				}
			}
		}
		// A review stack has those of its template.
		to := p.stack("pr-7")
		p.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			return p.service.CopySettings(t.Context(), tx, st, to, "test", func(*workflow.Settings) {})
		}))
		set, err := p.service.Settings(t.Context(), to)
		p.must(err)
		if !slices.Equal(set.Environments(), []string{"app/base", "app/prod@stable"}) {
			t.Errorf("the review stack has %q", set.Environments())
		}
	})
}
