package review_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/gitops/review"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/workflow"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

const (
	first  = "1111111111111111111111111111111111111111"
	second = "2222222222222222222222222222222222222222"
)

// plant is a server with a template and a pull request, whose jobs the test runs by hand.
type plant struct {
	t        *testing.T
	db       *store.DB
	service  *review.Service
	stacks   *stacks.Service
	queue    *deployments.Service
	user     identity.Principal
	org      store.Organization
	template store.Stack
	change   review.Change
}

// each runs a test with a database of each engine.
func each(t *testing.T, test func(t *testing.T, p *plant)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, db *store.DB) { test(t, newPlant(t, db)) })
}

func newPlant(t *testing.T, db *store.DB) *plant {
	p := &plant{t: t, db: db}
	ids := identity.New(p.db, storetest.Log())
	var token string
	p.must(ids.Bootstrap(t.Context(), "acme", func(text string) error { token = text; return nil }))
	var err error
	p.user, err = ids.Authenticate(t.Context(), token)
	p.must(err)
	p.org, err = ids.Organization(t.Context(), p.user, "acme")
	p.must(err)
	secrets, err := keyring.Open(t.Context(), p.db, bytes.Repeat([]byte{7}, 32))
	p.must(err)
	p.stacks = stacks.New(p.db, stacks.Options{Log: storetest.Log(), Secrets: secrets})
	p.queue = deployments.New(p.db, deployments.Options{Log: storetest.Log(), Secrets: secrets, Updates: p.stacks, Pools: pools.New(p.db, storetest.Log()), ExternalURL: "http://server.test"})
	p.service = review.New(p.db, review.Options{Log: storetest.Log(), Queue: p.queue, Stacks: p.stacks})
	p.template = p.templateOf("web", "dev")
	p.write(func(tx *store.Tx) error {
		p.change.Integration = store.VCSIntegration{ID: "int", OrgID: p.org.ID, Provider: "github", Name: "acme", Options: "{}"}
		p.change.Repo = store.VCSRepo{ID: "repo", IntegrationID: "int", RemoteID: "42", Name: "acme/web", CloneURL: "https://github.com/acme/web.git"}
		if err := tx.InsertIntegration(p.change.Integration); err != nil {
			return err
		}
		return tx.InsertRepo(p.change.Repo)
	})
	return p
}

func (p *plant) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *plant) write(act func(tx *store.Tx) error) {
	p.t.Helper()
	p.must(p.db.Write(p.t.Context(), scope.Server(), act))
}

func (p *plant) stack(project, name string) store.Stack {
	p.t.Helper()
	st, err := p.stacks.Create(p.t.Context(), p.user, stacks.NewStack{Org: p.org, Project: project, Name: name})
	p.must(err)
	return st
}

// templateOf creates a template.
func (p *plant) templateOf(project, name string) store.Stack {
	p.t.Helper()
	st := p.stack(project, name)
	_, err := p.queue.ReplaceSettings(p.t.Context(), p.user, st, []byte(`{"vcs":{"provider":"github","repository":"acme/web","pullRequestTemplate":true,"reviewStackTTL":"72h"},
		"sourceContext":{"git":{"branch":"main","repoDir":"infra"}},
		"operationContext":{"preRunCommands":["make tools"],"environmentVariables":{"KEY":{"secret":"of the template"}}}}`), "test")
	p.must(err)
	return st
}

func (p *plant) decision(template store.Stack, action vcs.Action, reason vcs.Reason) vcs.Decision {
	return vcs.Decision{Watch: vcs.Watch{StackID: template.ID, OrgID: p.org.ID, Project: template.Project, Stack: template.Name, Template: true, Branch: "main"}, Action: action, Reason: reason}
}

// event is an event about the pull request, in the transaction of the worker.
func (p *plant) event(state vcs.PullState, head string, decisions ...vcs.Decision) {
	p.t.Helper()
	p.change.Pull = vcs.Pull{Number: 7, State: state, Head: head, Base: "main", Source: "feature", Ref: "refs/pull/7/head"}
	p.change.Row = store.VCSPull{ID: "pull", RepoID: "repo", Number: 7, State: string(state), Head: head, Base: "main", Author: "mallory"}
	p.change.Decisions = decisions
	p.write(func(tx *store.Tx) error {
		if err := tx.SavePull(p.change.Row); err != nil {
			return err
		}
		return p.service.Reviewed(p.t.Context(), tx, p.change)
	})
}

func (p *plant) open(head string) {
	p.t.Helper()
	p.event(vcs.PullOpen, head, p.decision(p.template, vcs.ActionReview, vcs.ReasonPull))
}

func (p *plant) close() {
	p.t.Helper()
	p.event(vcs.PullClosed, p.change.Pull.Head, p.decision(p.template, vcs.ActionSkip, vcs.ReasonClosed))
}

// pass moves what happened to review stacks into the past, because the time of PostgreSQL is not the
// test's.
func (p *plant) pass(d time.Duration) {
	p.t.Helper()
	rows := p.rows()
	p.write(func(tx *store.Tx) error {
		for _, r := range rows {
			r.TryAt = r.TryAt.Add(-d)
			if !r.DeployedAt.IsZero() {
				r.DeployedAt = r.DeployedAt.Add(-d)
			}
			if err := tx.SaveReviewStack(r); err != nil {
				return err
			}
			if r.DestroyID == "" {
				continue
			}
			j, err := tx.JobOfDeployment(r.DestroyID)
			if err != nil {
				return err
			}
			if !j.EndedAt.IsZero() {
				j.EndedAt = j.EndedAt.Add(-d)
			}
			if err := tx.SaveJob(j); err != nil {
				return err
			}
		}
		return nil
	})
}

// settle takes steps until nothing is due.
func (p *plant) settle() {
	p.t.Helper()
	for range 10 {
		p.must(p.service.Sweep(p.t.Context()))
	}
}

func (p *plant) rows() (rows []store.ReviewStack) {
	p.t.Helper()
	p.write(func(tx *store.Tx) (err error) {
		rows, err = tx.ReviewStacksOfPull("repo", 7)
		return err
	})
	return rows
}

func (p *plant) row() store.ReviewStack {
	p.t.Helper()
	rows := p.rows()
	if len(rows) != 1 {
		p.t.Fatalf("%d review stacks: %+v", len(rows), rows)
	}
	return rows[0]
}

// jobs returns the deployments of the review stack as "operation status commit".
func (p *plant) jobs() (out []string) {
	p.t.Helper()
	id := p.row().StackID
	p.write(func(tx *store.Tx) error {
		list, _, err := tx.Deployments(store.DeploymentFilter{OrgID: p.org.ID, StackID: id, Limit: 50, Sort: "version", Asc: true, Reach: store.Reach{All: []string{p.org.ID}}})
		for _, d := range list {
			c, err := tx.Checkout(d.Deployment.ID)
			if err != nil {
				return err
			}
			out = append(out, strings.TrimSpace(string(d.Job.Operation)+" "+string(d.Job.Status)+" "+c.CommitID[:min(1, len(c.CommitID))]))
		}
		return err
	})
	return out
}

func (p *plant) expect(want ...string) {
	p.t.Helper()
	p.settle()
	if got := p.jobs(); !slices.Equal(got, want) {
		p.t.Fatalf("deployments %q, want %q", got, want)
	}
}

// run changes the newest deployment of an operation that has not ended. resources are those of the
// stack afterwards.
func (p *plant) run(op workflow.Operation, status workflow.Status, resources int64) {
	p.t.Helper()
	id := p.row().StackID
	p.write(func(tx *store.Tx) error {
		queued, err := tx.QueuedJobsOfStack(id)
		if err != nil {
			return err
		}
		active, err := tx.ActiveJobsOfStack(id)
		if err != nil {
			return err
		}
		for _, j := range append(active, queued...) {
			if j.Operation != op {
				continue
			}
			if j.Status = status; status.Final() {
				j.EndedAt = tx.Now()
			}
			st, err := tx.Stack(id)
			if err != nil {
				return err
			}
			st.ResourceCount = resources
			if err := tx.UpdateStack(st); err != nil {
				return err
			}
			return tx.SaveJob(j)
		}
		p.t.Fatalf("no %s waits or runs", op)
		return nil
	})
	p.pass(10 * time.Second)
}

// remove removes the stack, as a destroy with deleteAfterDestroy does.
func (p *plant) remove() {
	p.t.Helper()
	id := p.row().StackID
	p.run(workflow.OperationDestroy, workflow.StatusSucceeded, 0)
	p.write(func(tx *store.Tx) error { return tx.DeleteStack(id, "ada") })
}
