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
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/keyring"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/review"
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
	clock    *storetest.Clock
	service  *review.Service
	stacks   *stacks.Service
	user     identity.Principal
	org      store.Organization
	template store.Stack
	change   review.Change
}

func newPlant(t *testing.T) *plant {
	clock := new(storetest.Clock)
	p := &plant{t: t, clock: clock, db: storetest.SQLiteAt(t, clock)}
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
	queue := deployments.New(p.db, deployments.Options{Log: storetest.Log(), Secrets: secrets, Updates: p.stacks, Pools: pools.New(p.db, storetest.Log()), ExternalURL: "http://server.test"})
	p.service = review.New(p.db, review.Options{Log: storetest.Log(), Queue: queue, Stacks: p.stacks})
	p.template = p.stack("dev")
	_, err = queue.ReplaceSettings(t.Context(), p.user, p.template, []byte(`{"vcs":{"provider":"github","repository":"acme/web","pullRequestTemplate":true,"reviewStackTTL":"72h"},
		"sourceContext":{"git":{"branch":"main","repoDir":"infra"}},
		"operationContext":{"preRunCommands":["make tools"],"environmentVariables":{"KEY":{"secret":"of the template"}}}}`), "test")
	p.must(err)
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
	p.must(p.db.Write(p.t.Context(), act))
}

func (p *plant) stack(name string) store.Stack {
	p.t.Helper()
	st, err := p.stacks.Create(p.t.Context(), p.user, stacks.NewStack{Org: p.org, Project: "web", Name: name})
	p.must(err)
	return st
}

func (p *plant) decision(template store.Stack, action vcs.Action, reason vcs.Reason) vcs.Decision {
	return vcs.Decision{Watch: vcs.Watch{StackID: template.ID, OrgID: p.org.ID, Project: "web", Stack: template.Name, Template: true, Branch: "main"}, Action: action, Reason: reason}
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
	p.clock.Pass(10 * time.Second)
}

// remove removes the stack, as a destroy with deleteAfterDestroy does.
func (p *plant) remove() {
	p.t.Helper()
	id := p.row().StackID
	p.run(workflow.OperationDestroy, workflow.StatusSucceeded, 0)
	p.write(func(tx *store.Tx) error { return tx.DeleteStack(id) })
}

func TestRow70Opened(t *testing.T) {
	p := newPlant(t)
	p.open(first)
	p.expect("update not-started 1")
	r := p.row()
	if r.Name != "pr-acme-web-7" || r.TTL != 72*time.Hour {
		t.Errorf("%+v", r)
	}
	p.write(func(tx *store.Tx) error {
		tags, err := tx.StackTags(r.StackID)
		if err == nil && (tags[review.TagTemplate] != "dev" || tags[review.TagPull] != "7") {
			t.Errorf("tags %v", tags)
		}
		row, err := tx.DeploymentSettings(r.StackID)
		for _, part := range []string{
			`"repoUrl":"https://github.com/acme/web.git"`, `"repoDir":"infra"`, `"pullRequestTemplate":false`, `"make tools"`,
			`pulumi config cp --stack acme/web/dev --dest acme/web/pr-acme-web-7`,
		} {
			if !strings.Contains(row.Document, part) {
				t.Errorf("the settings lack %s: %s", part, row.Document)
			}
		}
		if strings.Contains(row.Document, "of the template") || row.Source != "github-review-stack" {
			t.Errorf("settings %+v", row)
		}
		return err
	})
	p.open(first) // the same again
	p.expect("update not-started 1")
}

func TestNewCommits(t *testing.T) {
	p := newPlant(t)
	p.open(first)
	p.settle()
	p.open(second)
	p.expect("update skipped 1", "update not-started 2")
	p.run(workflow.OperationUpdate, workflow.StatusRunning, 0)
	p.open(first)
	p.expect("update skipped 1", "update running 2", "update not-started 1")
}

func TestRow71And72LabelsDecideOnlyOnce(t *testing.T) {
	p := newPlant(t)
	p.event(vcs.PullOpen, first, p.decision(p.template, vcs.ActionNone, vcs.ReasonLabel))
	p.settle()
	if len(p.rows()) != 0 {
		t.Fatal("a stack without the label")
	}
	p.open(first) // the label was added
	p.expect("update not-started 1")
	p.event(vcs.PullOpen, second, p.decision(p.template, vcs.ActionNone, vcs.ReasonLabel)) // and removed
	p.expect("update skipped 1", "update not-started 2")
}

func TestRow73And74OneStackPerProject(t *testing.T) {
	p := newPlant(t)
	other := p.stack("other")
	p.open(first)
	p.settle()
	// Later, another template of the project matches.
	p.event(vcs.PullOpen, second, p.decision(p.template, vcs.ActionNone, vcs.ReasonNoPath), p.decision(other, vcs.ActionReview, vcs.ReasonPull))
	p.expect("update skipped 1", "update not-started 2")
}

func TestRow75Closed(t *testing.T) {
	p := newPlant(t)
	p.open(first)
	p.settle()
	p.run(workflow.OperationUpdate, workflow.StatusRunning, 0)
	p.open(second)
	p.settle()
	p.close()
	p.expect("update running 1", "update skipped 2", "destroy not-started 2")
	p.run(workflow.OperationUpdate, workflow.StatusSucceeded, 3)
	p.settle()
	p.remove()
	p.settle()
	if rows := p.rows(); len(rows) != 0 {
		t.Errorf("%+v", rows)
	}
}

func TestRow75ClosedBeforeAnythingRan(t *testing.T) {
	p := newPlant(t)
	p.open(first)
	p.settle()
	id := p.row().StackID
	p.close()
	p.settle()
	p.clock.Pass(time.Minute)
	p.settle()
	if rows := p.rows(); len(rows) != 0 {
		t.Errorf("%+v", rows)
	}
	p.write(func(tx *store.Tx) error {
		if _, err := tx.Stack(id); err == nil {
			t.Error("the stack remains")
		}
		return nil
	})
}

func TestRow76Reopened(t *testing.T) {
	p := newPlant(t)
	p.open(first)
	p.settle()
	p.run(workflow.OperationUpdate, workflow.StatusSucceeded, 3)
	p.close()
	p.expect("update succeeded 1", "destroy not-started 1")
	p.open(first)
	p.expect("update succeeded 1", "destroy skipped 1")
	// During the destroy, the update waits.
	p.close()
	p.settle()
	p.run(workflow.OperationDestroy, workflow.StatusRunning, 3)
	p.open(second)
	p.expect("update succeeded 1", "destroy skipped 1", "destroy running 1")
	before := p.row().StackID
	p.remove()
	p.expect("update not-started 2")
	if p.row().StackID == before {
		t.Error("the stack is not new")
	}
}

func TestRow77BranchDeleted(t *testing.T) {
	p := newPlant(t)
	p.open(first)
	p.settle()
	p.run(workflow.OperationUpdate, workflow.StatusSucceeded, 3)
	p.close()
	p.settle()
	p.run(workflow.OperationDestroy, workflow.StatusFailed, 3)
	p.expect("update succeeded 1", "destroy failed 1")
	p.clock.Pass(10 * time.Minute)
	p.expect("update succeeded 1", "destroy failed 1", "destroy not-started")
}

func TestRow78CloseEventLost(t *testing.T) {
	p := newPlant(t)
	p.open(first)
	p.settle()
	p.run(workflow.OperationUpdate, workflow.StatusSucceeded, 3)
	p.write(func(tx *store.Tx) error { // what a poll records
		row := p.change.Row
		row.State = string(vcs.PullMerged)
		return tx.SavePull(row)
	})
	p.clock.Pass(2 * time.Hour)
	p.expect("update succeeded 1", "destroy not-started 1")
}

func TestRow79DestroyFails(t *testing.T) {
	p := newPlant(t)
	p.open(first)
	p.settle()
	p.run(workflow.OperationUpdate, workflow.StatusSucceeded, 3)
	p.close()
	for _, pause := range []time.Duration{0, 10 * time.Minute, time.Hour, 6 * time.Hour} {
		p.clock.Pass(pause)
		p.settle()
		p.run(workflow.OperationDestroy, workflow.StatusFailed, 3)
	}
	p.clock.Pass(100 * time.Hour)
	p.settle()
	if r := p.row(); !r.Orphan || r.Problem == "" || r.Tries != 4 {
		t.Errorf("%+v", r)
	}
	p.open(second) // the stack is used again
	p.settle()
	if r := p.row(); r.Orphan || r.Problem != "" || r.Deployed != second {
		t.Errorf("%+v", r)
	}
}

func TestRow80TemplateDeleted(t *testing.T) {
	p := newPlant(t)
	p.open(first)
	p.settle()
	p.run(workflow.OperationUpdate, workflow.StatusSucceeded, 3)
	p.write(func(tx *store.Tx) error { return tx.DeleteStack(p.template.ID) })
	p.event(vcs.PullOpen, second)
	p.expect("update succeeded 1")
	p.event(vcs.PullMerged, second)
	p.expect("update succeeded 1", "destroy not-started 1")
}

func TestRow81NameTaken(t *testing.T) {
	p := newPlant(t)
	mine := p.stack("pr-acme-web-7")
	p.open(first)
	p.settle()
	if r := p.row(); r.StackID != "" || !strings.Contains(r.Problem, "web/pr-acme-web-7 exists") {
		t.Errorf("%+v", r)
	}
	p.close()
	p.settle()
	p.write(func(tx *store.Tx) error {
		_, err := tx.Stack(mine.ID)
		return err
	})
}

func TestRow83TimeToLive(t *testing.T) {
	p := newPlant(t)
	p.open(first)
	p.settle()
	p.run(workflow.OperationUpdate, workflow.StatusSucceeded, 3)
	p.clock.Pass(73 * time.Hour)
	p.expect("update succeeded 1", "destroy not-started 1")
	p.close()
	p.expect("update succeeded 1", "destroy not-started 1")
}

func TestForkLosesApproval(t *testing.T) {
	p := newPlant(t)
	p.open(first)
	p.settle()
	p.event(vcs.PullOpen, second, p.decision(p.template, vcs.ActionNone, vcs.ReasonFork))
	p.expect("update not-started 1")
}
