package evaluations_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/policies/evaluations"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// plant is a queue with one organization, one pool and the audit group "audit" with the pack "lab".
type plant struct {
	t      testing.TB
	db     *store.DB
	queue  *evaluations.Service
	polls  *deployments.Service
	stacks *stacks.Service
	user   identity.Principal
	agent  identity.Principal // of the pool
	org    store.Organization
	group  store.PolicyGroup
	sent   atomic.Int64
}

type locator struct{}

func (locator) LocationForJob(_ context.Context, versionID string) (string, error) {
	return "http://server.test/packs/" + versionID + "?sig=secret", nil
}

func newPlant(t testing.TB, db *store.DB, lease time.Duration, limits ...int64) *plant {
	t.Helper()
	ctx := t.Context()
	ids := identity.New(db, storetest.Log())
	p := &plant{t: t, db: db}
	var token string
	p.must(ids.Bootstrap(ctx, "acme", func(text string) error { token = text; return nil }))
	var err error
	p.user, err = ids.Authenticate(ctx, token)
	p.must(err)
	p.org, err = ids.Organization(ctx, p.user, "acme")
	p.must(err)
	secrets, err := keyring.Open(ctx, db, bytes.Repeat([]byte{7}, 32))
	p.must(err)
	poolService := pools.New(db, storetest.Log())
	p.stacks = stacks.New(db, stacks.Options{Log: storetest.Log(), Secrets: secrets})
	p.queue = evaluations.New(db, evaluations.Options{Log: storetest.Log(), Locator: locator{}, ExternalURL: "http://server.test", Lease: lease})
	p.polls = deployments.New(db, deployments.Options{
		Log: storetest.Log(), Secrets: secrets, Updates: p.stacks, Pools: poolService, ExternalURL: "http://server.test", Evaluations: p.queue,
		Cap: slices.Max(append(limits, 0)),
	})
	p.stacks.Follow(stacks.Hooks{StateChanged: p.queue.StateChanged})
	made, err := poolService.Create(ctx, p.user, p.org, "p", "")
	p.must(err)
	p.agent, err = ids.Authenticate(ctx, made.Token)
	p.must(err)
	p.must(poolService.SetDefault(ctx, p.org.ID, made.Pool.ID))
	p.group = store.PolicyGroup{ID: "g", OrgID: p.org.ID, Name: "audit", EntityType: "stacks", Mode: "audit", AllStacks: true, EvaluationHours: 24}
	p.write(func(tx *store.Tx) error {
		p.must(tx.InsertPolicyGroup(p.group))
		p.must(tx.InsertPolicyPack(store.PolicyPack{ID: "k", OrgID: p.org.ID, Name: "lab"}))
		p.must(tx.InsertPackVersion(store.PolicyPackVersion{
			ID: "v", PackID: "k", Number: 3, Tag: "1.0.0", Status: store.PackComplete, Blob: "policy-packs/v", SHA256: "ab",
			Levels: []store.PolicyLevel{{Name: "no-bad-content", Level: "mandatory"}},
		}))
		return tx.SaveEnabledPack(store.EnabledPack{GroupID: "g", PackID: "k", VersionID: "v", Config: `{"no-bad-content":{"max":3}}`})
	})
	return p
}

func (p *plant) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *plant) write(fn func(tx *store.Tx) error) {
	p.t.Helper()
	p.must(p.db.Write(p.t.Context(), scope.Server(), fn))
}

// stack adds a stack with one version of its state, whose evaluations are queued.
func (p *plant) stack(name string) store.Stack {
	p.t.Helper()
	st := store.Stack{ID: "stack-" + name, OrgID: p.org.ID, OrgName: "acme", Project: "proj", Name: name, Version: 1, StateBlob: "states/" + name, CreatedAt: time.Unix(1, 0)}
	p.write(func(tx *store.Tx) error { return tx.InsertStack(st) })
	p.updated(st, 1)
	return st
}

// updated records an update that has ended, as the stacks' service does.
func (p *plant) updated(st store.Stack, version int64) {
	p.t.Helper()
	p.write(func(tx *store.Tx) error {
		p.must(tx.InsertUpdate(store.Update{
			ID: fmt.Sprintf("%s-%d", st.ID, version), StackID: st.ID, Kind: "update", Status: "succeeded", Version: version, Program: "{}",
			CreatedAt: tx.Now(), StartedAt: tx.Now(), FinishedAt: tx.Now(), StateBlob: st.StateBlob, ResourceChanges: "{}",
		}))
		return p.queue.StateChanged(tx, st)
	})
}

// poll returns the claim of an agent that announces types.
func (p *plant) poll(agent string, types ...workflow.Type) *deployments.Claim {
	p.t.Helper()
	return p.repoll(agent, fmt.Sprintf("%s-%d", agent, p.sent.Add(1)), types...)
}

func (p *plant) repoll(agent, id string, types ...workflow.Type) *deployments.Claim {
	p.t.Helper()
	answer, err := p.polls.Poll(p.t.Context(), deployments.Poll{
		Agent:  pools.Sighting{AgentID: agent, SessionID: agent, Hostname: agent, Slots: 1, Platform: "linux/arm64"},
		PollID: id, FreeSlots: 1, Types: types,
	}.From(p.agent))
	p.must(err)
	return answer.Claim
}

func runner(c *deployments.Claim) identity.Principal {
	return identity.Principal{
		Kind: identity.KindRunner, Org: store.Organization{ID: c.Job.OrgID}, StackID: c.Job.StackID,
		JobID: c.Job.ID, Epoch: c.Job.Epoch, PoolID: c.Job.PoolID,
	}
}

// token is the access token in the definition of a claim.
func token(c *deployments.Claim) identity.Principal {
	t := runner(c)
	t.Kind, t.Scope = identity.KindJob, identity.EvaluationScope(c.Job.StackID)
	return t
}

func (p *plant) heartbeat(c *deployments.Claim, phase protocol.Phase) error {
	_, err := p.queue.Heartbeat(p.t.Context(), runner(c), c.Job.ID, protocol.HeartbeatRequest{Phase: phase})
	return err
}

// start lets a claim fetch its definition and start.
func (p *plant) start(c *deployments.Claim) *workflow.JobDefinition {
	p.t.Helper()
	def, err := p.queue.Definition(p.t.Context(), runner(c), c.Job.ID)
	p.must(err)
	p.must(p.heartbeat(c, protocol.PhaseStarting))
	return def
}

func (p *plant) report(c *deployments.Claim, def *workflow.JobDefinition, r workflow.PolicyResults) error {
	e := def.PolicyEvaluation
	st := store.Stack{ID: c.Job.StackID, OrgID: c.Job.OrgID}
	return p.queue.Report(p.t.Context(), token(c), st, e.Version, workflow.PolicyReport{ClaimID: e.ClaimID, Results: r})
}

func (p *plant) result(c *deployments.Claim, status workflow.Status) error {
	return p.queue.Result(p.t.Context(), runner(c), c.Job.ID, protocol.ResultRequest{Status: status, FinishedAt: time.Now()})
}

func (p *plant) evaluation(id string) store.Evaluation {
	p.t.Helper()
	e, err := store.Read(p.t.Context(), p.db, func(tx *store.Tx) (store.Evaluation, error) { return tx.Evaluation(id) })
	p.must(err)
	return e
}

// silence makes the last sign of life of an evaluation old, and checks the timers.
func (p *plant) silence(id string) {
	p.t.Helper()
	p.write(func(tx *store.Tx) error {
		e, err := tx.Evaluation(id)
		p.must(err)
		e.LastSeenAt = tx.Now().Add(-time.Hour)
		return tx.SaveEvaluation(e, "last_seen_at")
	})
	p.must(p.queue.Check(p.t.Context()))
}
