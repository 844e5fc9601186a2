package api_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// lab is a running API with deployments, one agent pool and clients for it.
type lab struct {
	*fixture
	client    *protocol.Client
	pool      string
	poolToken string
	// The following fields are for lost answers to COMMIT.

	name  string // of the stack of a test
	loses bool   // the server does not learn the outcomes of writes
}

// leaseSweep is the interval of labs in which leases expire. Pauses of a server that are longer than three
// intervals extend leases: with a shorter interval, leases never expire on a slow machine.
const leaseSweep = 200 * time.Millisecond

// eachLab runs a test on both database engines.
func eachLab(t *testing.T, o deployments.Options, test func(t *testing.T, l *lab)) {
	storetest.Each(t, func(t *testing.T, db *store.DB) { test(t, newLab(t, db, o)) })
}

func newLab(t *testing.T, db *store.DB, o deployments.Options) *lab {
	t.Helper()
	return newLabWith(t, db, options{deployments: o})
}

func newLabWith(t *testing.T, db *store.DB, o options) *lab {
	t.Helper()
	l := &lab{fixture: newFixtureOn(t, db, o)}
	l.stacks.Follow(stacks.Hooks{LinkUpdate: l.service.LinkUpdate, MayWrite: l.service.MayWrite, StackDeleted: l.service.StackDeleted, UpdateFinished: l.service.UpdateFinished, Recorded: l.results.Recorded, Ended: l.results.Ended})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.service.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	var err error
	if l.client, err = protocol.NewClient(protocol.Options{BaseURL: l.server.URL, UserAgent: "agent-test/1"}); err != nil {
		t.Fatal(err)
	}
	l.pool, l.poolToken = l.newPool("p1")
	return l
}

func (l *lab) newPool(name string) (id, token string) {
	l.t.Helper()
	var made struct{ ID, TokenValue string }
	l.do("POST", "/api/orgs/acme/agent-pools", map[string]any{"name": name}).want(200, &made)
	if made.ID == "" || !strings.HasPrefix(made.TokenValue, "pul-") {
		l.t.Fatalf("creating a pool returned %+v", made)
	}
	return made.ID, made.TokenValue
}

// deployable creates a stack whose settings name the pool, and returns the path of its deployments.
func (l *lab) deployable(name string) string {
	l.t.Helper()
	path := l.stack(name) + "/deployments"
	l.do("PUT", path+"/settings", map[string]any{
		"agentPoolID":   l.pool,
		"sourceContext": map[string]any{"git": map[string]any{"repoUrl": "https://example.com/a/b.git", "branch": "main"}},
	}).want(200, nil)
	return path
}

func (l *lab) deploy(path, operation string) string {
	l.t.Helper()
	var made struct {
		ID         string
		ConsoleURL *string
		Version    int64
	}
	l.do("POST", path, map[string]any{"operation": operation}).want(202, &made)
	if made.ID == "" || made.Version < 1 || made.ConsoleURL == nil {
		l.t.Fatalf("creating a deployment returned %+v", made)
	}
	return made.ID
}

type details struct {
	ID, Status, Reason, Message string
	Version                     int64
	Agent                       *struct{ ID, Hostname, Version string }
	AgentPool                   *struct{ ID, Name string }
	Jobs                        []struct {
		Status string
		Steps  []struct{ Name, Status string }
	}
	Notes         []string
	Results       []struct{ Status, Reason string }
	Configuration struct {
		EnvironmentVariables []struct {
			Name, Value string
			Secret      bool
		}
		Source *struct {
			Git struct{ RepoURL, Branch, Commit string }
		}
	}
	Initiator       string
	CancelRequested bool
	InheritSettings bool
	Paused          bool
	Updates         []struct{ UpdateID, Kind, Result string }
	Queued          *struct {
		Reason, Message string
		Pools           []struct {
			ID, Name                string
			Agents, ConnectedAgents int
		}
		Agents []struct {
			ID, Hostname, Why string
			Connected         bool
			Running           int
		}
	}
}

func (l *lab) details(path, id string) details {
	l.t.Helper()
	var d details
	l.do("GET", path+"/"+id, nil).want(200, &d)
	return d
}

func (l *lab) becomes(path, id, status string) details {
	l.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		d := l.details(path, id)
		if d.Status == status {
			return d
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("deployment is %s (%s), want %s", d.Status, d.Message, status)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// request returns a new poll request of the named agent.
func (l *lab) request(name string, wait time.Duration) protocol.PollRequest {
	return protocol.PollRequest{
		AgentID: name, SessionID: name + "-session", PollID: newPollID(), Hostname: "host-" + name, PID: 7,
		Version: "v1.2.3", Platform: "linux/arm64", FreeSlots: 1, Interval: 30 * time.Second, Wait: wait,
	}
}

var polls atomic.Int64

func newPollID() string { return fmt.Sprintf("poll-%d", polls.Add(1)) }

func (l *lab) claim(name string) (*protocol.PollResponse, *protocol.JobClient) {
	l.t.Helper()
	res, err := l.client.Poll(l.t.Context(), l.poolToken, l.request(name, 10*time.Second))
	if err != nil {
		l.t.Fatalf("poll: %v", err)
	}
	if res.Job == nil {
		l.t.Fatal("the poll got no job")
	}
	return res.Job, l.client.Job(res.Job.JobID, res.Job.JobToken)
}

// nothing fails the test if a poll returns a job to the named agent.
func (l *lab) nothing(name string) {
	l.t.Helper()
	res, err := l.client.Poll(l.t.Context(), l.poolToken, l.request(name, 0))
	if err != nil {
		l.t.Fatalf("poll: %v", err)
	}
	if res.Job != nil {
		l.t.Fatalf("the poll got job %s", res.Job.JobID)
	}
	if res.RetryAfter <= 0 {
		l.t.Error("the response to a poll without a wait has no Retry-After")
	}
}

func (l *lab) start(name string) (*protocol.PollResponse, *protocol.JobClient) {
	l.t.Helper()
	job, jc := l.claim(name)
	if _, err := jc.Heartbeat(l.t.Context(), protocol.PhaseStarting); err != nil {
		l.t.Fatalf("fetching the definition: %v", err)
	}
	return job, jc
}

func (l *lab) end(jc *protocol.JobClient, status workflow.Status) {
	l.t.Helper()
	err := jc.Result(l.t.Context(), protocol.ResultRequest{Status: status, FinishedAt: time.Now()})
	if err != nil {
		l.t.Fatalf("result: %v", err)
	}
}

func wantCode(t *testing.T, what string, err error, code int) {
	t.Helper()
	if got := protocol.StatusCode(err); got != code {
		t.Errorf("%s: got %v, want status %d", what, err, code)
	}
}
