package report_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/redact"
	"workflowagent/internal/retry"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/gitops/report"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/outbox"
	"workflowagent/internal/workflow"
)

const (
	secret = "correct-horse-battery"
	first  = "1111111111111111111111111111111111111111"
	second = "2222222222222222222222222222222222222222"
)

// forge is a forge that keeps what it is shown.
type forge struct {
	vcs.Repository // the methods that reports do not use

	mu       sync.Mutex
	err      error                 // of the next calls, if not nil
	calls    int                   // also those that failed
	times    []time.Time           // of the calls that succeeded
	reports  map[string]vcs.Report // by commit and context
	comments map[int]string        // by pull request
	created  int                   // comments
	changed  chan struct{}
	before   func() // called at the start of each call, if not nil
}

func newForge() *forge {
	return &forge{reports: map[string]vcs.Report{}, comments: map[int]string{}, changed: make(chan struct{}, 1)}
}

func (f *forge) call(do func()) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() {
		select {
		case f.changed <- struct{}{}:
		default:
		}
	}()
	if f.before != nil {
		f.before()
	}
	f.calls++
	if f.err != nil {
		return f.err
	}
	f.times = append(f.times, time.Now())
	do()
	return nil
}

func (f *forge) Report(_ context.Context, _ vcs.RepoID, r vcs.Report) (id string, err error) {
	return "status", f.call(func() { f.reports[r.Commit+" "+r.Context] = r })
}

func (f *forge) Comment(_ context.Context, _ vcs.RepoID, pull int, c vcs.Comment) (id string, err error) {
	return "comment", f.call(func() {
		if c.ID == "" && !strings.Contains(f.comments[pull], c.Marker) {
			f.created++
		}
		f.comments[pull] = c.Body
	})
}

func (f *forge) CommentLimit() int { return 60_000 }

func (f *forge) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// stacks returns the same changes for all updates.
type stacks struct{}

func (stacks) Changes(context.Context, identity.Principal, store.Stack, store.Update) (changes.Tree, error) {
	return changes.Tree{
		Rows: []changes.Row{{Type: "a:b:C", Name: "thing-" + secret, Op: "create", State: changes.Planned}}, Totals: map[string]int{"create": 1},
	}, nil
}

func (stacks) ExportOutputs(context.Context, string) (*states.State, error) {
	return &states.State{Deployment: []byte(`{"resources":[{"outputs":{"url":"https://pr.example.com","password":{"4dabf18193072939515e22adb298388d":"1b47061264138c4ac30d75fd1eb44270","ciphertext":"AAAA"}}}]}`)}, nil
}

// fixture is a server with two stacks whose pull requests are reported.
type fixture struct {
	t       *testing.T
	db      *store.DB
	forge   *forge
	to      report.Integration
	service *report.Service
	subject outbox.Subject
	version int64
}

// each runs a test with both databases, and one runs it with SQLite.
func each(t *testing.T, test func(f *fixture)) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, db *store.DB) { test(newFixture(t, db)) })
}

func one(t *testing.T, test func(f *fixture)) {
	t.Parallel()
	test(newFixture(t, storetest.SQLite(t)))
}

func newFixture(t *testing.T, db *store.DB) *fixture {
	f := &fixture{t: t, db: db, forge: newForge(), subject: outbox.Subject{IntegrationID: "int-1", RepoID: "repo", Pull: 7, Commit: first}}
	f.to = report.Integration{Client: f.forge, Folds: true}
	f.write(func(tx *store.Tx) error {
		err := tx.InsertOrganization(store.Organization{ID: "org", Name: "acme", CreatedAt: tx.Now()})
		for _, name := range []string{"dev", "prod"} {
			if err == nil {
				err = tx.InsertStack(store.Stack{ID: name, OrgID: "org", Project: "web", Name: name, CreatedAt: tx.Now()})
			}
		}
		for _, id := range []string{"int-1", "int-2"} {
			if err == nil {
				err = tx.InsertIntegration(store.VCSIntegration{ID: id, OrgID: "org", Provider: "github", Name: id, Options: "{}", CreatedAt: tx.Now()})
			}
		}
		if err == nil {
			err = tx.InsertRepo(store.VCSRepo{ID: "repo", IntegrationID: "int-1", RemoteID: "42", Name: "acme/web", CreatedAt: tx.Now()})
		}
		return err
	})
	f.pull(first, false)
	f.service = f.newService()
	return f
}

func (f *fixture) newService() *report.Service {
	return report.New(f.db, report.Options{
		Log: storetest.Log(), Stacks: stacks{}, Memory: budget.New(64<<20, time.Second), Console: links.Console("https://console.example.com"),
		Connect: func(_ context.Context, id string) (report.Integration, error) {
			if id != "int-1" {
				return report.Integration{}, fmt.Errorf("reading an integration: %w", store.ErrNotFound)
			}
			return f.to, nil
		},
		Secrets: func(context.Context, string) ([]redact.Secret, error) {
			return []redact.Secret{{Name: "KEY", Value: secret}}, nil
		},
		Spacing: 10 * time.Millisecond, Rewrite: 50 * time.Millisecond, Again: retry.Policy{First: 10 * time.Millisecond, Max: 20 * time.Millisecond},
	})
}

func (f *fixture) write(act func(tx *store.Tx) error) {
	f.t.Helper()
	if err := f.db.Write(f.t.Context(), scope.Server(), act); err != nil {
		f.t.Fatal(err)
	}
}

// deploy creates a deployment of a commit, as the worker does.
func (f *fixture) deploy(stack, commit string, op workflow.Operation, initiator string) string {
	f.t.Helper()
	f.version++
	id := fmt.Sprintf("d%d", f.version)
	f.write(func(tx *store.Tx) error {
		d := store.Deployment{ID: id, OrgID: "org", StackID: stack, Project: "web", Stack: stack, Version: f.version, Operation: op, Initiator: initiator, Configuration: "{}", CreatedAt: tx.Now()}
		if err := tx.InsertDeployment(d); err != nil {
			return err
		}
		if err := tx.InsertJob(store.Job{ID: "j" + id, DeploymentID: id, OrgID: "org", StackID: stack, Operation: op, Version: f.version, Status: workflow.StatusNotStarted, QueuedAt: tx.Now()}); err != nil {
			return err
		}
		u := store.Update{ID: "u" + id, StackID: stack, Kind: "preview", Preview: true, Status: "succeeded", DeploymentID: id, CreatedAt: tx.Now(), StartedAt: tx.Now(), FinishedAt: tx.Now()}
		if err := tx.InsertUpdate(u); err != nil {
			return err
		}
		s := f.subject
		s.Commit = commit
		if err := tx.InsertCheckout(store.VCSCheckout{DeploymentID: id, IntegrationID: s.IntegrationID, RepoID: s.RepoID, CommitID: commit, Pull: s.Pull}); err != nil {
			return err
		}
		return outbox.Track(tx, s, d)
	})
	return id
}

// pull sets the newest commit of the pull request.
func (f *fixture) pull(head string, draft bool) {
	f.t.Helper()
	f.write(func(tx *store.Tx) error {
		return tx.SavePull(store.VCSPull{ID: "pull", RepoID: "repo", Number: 7, State: "open", Head: head, Draft: draft})
	})
}

func (f *fixture) decide(d outbox.Decision) {
	f.t.Helper()
	if d.Subject == (outbox.Subject{}) {
		d.Subject = f.subject
	}
	f.write(func(tx *store.Tx) error { return outbox.Decide(tx, d) })
}

// finish changes the status of a deployment, as package deployments does.
func (f *fixture) finish(id string, status workflow.Status, reason workflow.Reason) {
	f.t.Helper()
	f.write(func(tx *store.Tx) error {
		job, err := tx.JobOfDeployment(id)
		if err != nil {
			return err
		}
		job.Status, job.Reason = status, reason
		if job.StartedAt = tx.Now(); status.Final() {
			job.EndedAt = tx.Now().Add(90 * time.Second)
		}
		if err := tx.SaveJob(job); err != nil {
			return err
		}
		return outbox.Changed(tx, job.StackID, id)
	})
}

// run runs the service until the test ends or stop is called.
func (f *fixture) run() (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan error, 1)
	go func() { done <- f.service.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				f.t.Error(err)
			}
		})
	}
	f.t.Cleanup(stop)
	return stop
}

// await waits until the forge shows what is wanted.
func (f *fixture) await(what string, shown func() bool) {
	f.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		f.forge.mu.Lock()
		ok := shown()
		f.forge.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-f.forge.changed:
		case <-deadline:
			f.forge.mu.Lock()
			defer f.forge.mu.Unlock()
			f.t.Fatalf("the forge never showed %s; it shows %+v and %v", what, f.forge.reports, f.forge.comments)
		}
	}
}

// quiet waits until nothing is due.
func (f *fixture) quiet() {
	f.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		due, err := store.Read(f.t.Context(), f.db, func(tx *store.Tx) ([]string, error) { return tx.DueVCSIntegrations(tx.Now().Add(time.Hour)) })
		if err != nil || time.Now().After(deadline) {
			f.t.Fatalf("reports remain due: %v %v", due, err)
		}
		if len(due) == 0 {
			return
		}
		select {
		case <-f.forge.changed:
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (f *fixture) state(commit, context string) vcs.ReportState {
	return f.forge.reports[commit+" "+context].State
}

const preview = "web/dev - preview deployment"
