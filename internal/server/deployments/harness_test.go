package deployments_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// plant is a service with one organization and one pool. Tests start its background work.
type plant struct {
	t       testing.TB
	db      *store.DB
	service *deployments.Service
	stacks  *stacks.Service
	pools   *pools.Service
	user    identity.Principal
	agent   identity.Principal // of the pool
	pool    string
	org     store.Organization
	polls   atomic.Int64
}

func newPlant(t testing.TB, db *store.DB, o deployments.Options) *plant {
	t.Helper()
	ctx := t.Context()
	ids := identity.New(db, storetest.Log())
	p := &plant{t: t, db: db}
	var token string
	p.must(ids.Bootstrap(ctx, "acme", func(text string) error { token = text; return nil }))
	var err error
	p.user, err = ids.Authenticate(ctx, token)
	p.must(err)
	p.build(o)
	p.org, err = ids.Organization(ctx, p.user, "acme")
	p.must(err)
	made, err := p.pools.Create(ctx, p.user, p.org, "p", "")
	p.must(err)
	p.pool = made.Pool.ID
	p.agent, err = ids.Authenticate(ctx, made.Token)
	p.must(err)
	p.must(p.pools.SetDefault(ctx, p.org.ID, p.pool))
	return p
}

func (p *plant) build(o deployments.Options) {
	p.t.Helper()
	secrets, err := keyring.Open(p.t.Context(), p.db, bytes.Repeat([]byte{7}, 32))
	p.must(err)
	p.stacks = stacks.New(p.db, stacks.Options{Log: storetest.Log(), Secrets: secrets})
	p.pools = pools.New(p.db, storetest.Log())
	o.Log, o.Secrets, o.Updates, o.Pools, o.ExternalURL = storetest.Log(), secrets, p.stacks, p.pools, "http://server.test"
	p.service = deployments.New(p.db, o)
	p.stacks.Follow(stacks.Hooks{LinkUpdate: p.service.LinkUpdate, MayWrite: p.service.MayWrite, StackDeleted: p.service.StackDeleted, UpdateFinished: p.service.UpdateFinished})
}

func (p *plant) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.service.Run(ctx) }()
	p.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Errorf("Run: %v", err)
		}
	})
}

func (p *plant) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *plant) stack(name string) store.Stack {
	p.t.Helper()
	st, err := p.stacks.Create(p.t.Context(), p.user, stacks.NewStack{Org: p.org, Project: "proj", Name: name})
	p.must(err)
	return st
}

// asked parses the request of a client.
func asked(t testing.TB, body string) workflow.Request {
	t.Helper()
	r, err := deployments.ParseRequest([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (p *plant) deploy(st store.Stack) string {
	p.t.Helper()
	d, err := p.service.Create(p.t.Context(), p.user, st, asked(p.t, `{"operation":"update"}`), "api")
	p.must(err)
	return d.ID
}

// again repeats a deployment, which it first ends.
func (p *plant) again(st store.Stack, id string) (store.Deployment, error) {
	p.t.Helper()
	if !p.job(id).Status.Final() {
		p.change(id, func(j *store.Job) { j.Status = workflow.StatusFailed })
	}
	return p.service.Again(p.t.Context(), p.user, st, id, deployments.Repetition{Initiator: deployments.InitiatorConsole}, deployments.Repeat{})
}

func (p *plant) poll(agent string) *deployments.Claim {
	p.t.Helper()
	answer, err := p.service.Poll(p.t.Context(), p.request(agent, 0).From(p.agent))
	c := answer.Claim
	p.must(err)
	return c
}

func (p *plant) request(agent string, wait time.Duration) deployments.Poll {
	return deployments.Poll{
		Agent:  pools.Sighting{AgentID: agent, SessionID: agent, Hostname: agent, Slots: 1},
		PollID: fmt.Sprintf("%s-%d", agent, p.polls.Add(1)), FreeSlots: 1, Wait: wait,
	}
}

func runner(c *deployments.Claim) identity.Principal {
	return identity.Principal{
		Kind: identity.KindRunner, Org: store.Organization{ID: c.Job.OrgID}, StackID: c.Job.StackID,
		JobID: c.Job.ID, Epoch: c.Job.Epoch, PoolID: c.Job.PoolID, DeploymentID: c.Job.DeploymentID,
	}
}

func (p *plant) heartbeat(c *deployments.Claim, phase protocol.Phase) error {
	return p.held(c, phase, "")
}

func (p *plant) held(c *deployments.Claim, phase protocol.Phase, holder string) error {
	_, err := p.beat(c, phase, holder)
	return err
}

func (p *plant) beat(c *deployments.Claim, phase protocol.Phase, holder string) (protocol.HeartbeatResponse, error) {
	return p.service.Heartbeat(p.t.Context(), runner(c), c.Job.ID, protocol.HeartbeatRequest{Phase: phase, Holder: holder})
}

func (p *plant) result(c *deployments.Claim, status workflow.Status) error {
	return p.service.Result(p.t.Context(), runner(c), c.Job.ID, protocol.ResultRequest{Status: status, FinishedAt: time.Now()})
}

func (p *plant) job(deploymentID string) store.Job {
	p.t.Helper()
	var job store.Job
	p.must(p.db.Read(p.t.Context(), func(tx *store.Tx) (err error) {
		job, err = tx.JobOfDeployment(deploymentID)
		return err
	}))
	return job
}

// change edits a job directly in the database, to simulate elapsed time.
func (p *plant) change(deploymentID string, edit func(*store.Job)) {
	p.t.Helper()
	p.must(p.db.Write(p.t.Context(), scope.Server(), func(tx *store.Tx) error {
		job, err := tx.JobOfDeployment(deploymentID)
		if err != nil {
			return err
		}
		edit(&job)
		return tx.SaveJob(job)
	}))
}

func (p *plant) eventually(what string, ok func() bool) {
	p.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s did not happen", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}
