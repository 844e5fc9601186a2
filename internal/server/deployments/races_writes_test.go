package deployments_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/triggers"
	"workflowagent/internal/server/webhooks"
	"workflowagent/internal/workflow"
)

// races are the pairs of writes that could pass each other.
func races() []race {
	return []race{
		{name: "claims at the limit", locks: only(scope.LevelClaims), cap: 1, same: true, prepare: func(p *plant) (a, b write) {
			p.deploy(p.stack("s1"))
			p.deploy(p.stack("s2"))
			return claim("a"), claim("b")
		}},
		{name: "claims of one stack", locks: only(scope.LevelClaims, scope.LevelStack), same: true, prepare: func(p *plant) (a, b write) {
			st := p.stack("s")
			p.deploy(st)
			p.deploy(st)
			return claim("a"), claim("b")
		}},
		{name: "claims of one group", locks: only(scope.LevelClaims), same: true, prepare: func(p *plant) (a, b write) {
			p.deploy(p.grouped("s1", "g"))
			p.deploy(p.grouped("s2", "g"))
			return claim("a"), claim("b")
		}},
		{name: "claim and the end of a job of the group", free: "one statement of the claim decides, and the commit that ends the job wakes the polls", prepare: func(p *plant) (a, b write) {
			p.deploy(p.grouped("s1", "g"))
			c := p.poll("a")
			p.must(p.heartbeat(c, protocol.PhaseStarting))
			p.deploy(p.grouped("s2", "g"))
			p.deploy(p.grouped("s3", "g"))
			return claim("b"), write{call: func(p *plant) string { return kind(p.result(c, workflow.StatusSucceeded)) }}
		}},
		{name: "claim and a lost job of the group", free: "one statement of the claim decides, and one commit ends the job and blocks the group", prepare: func(p *plant) (a, b write) {
			id := p.deploy(p.grouped("s1", "g"))
			c := p.poll("a")
			p.must(p.heartbeat(c, protocol.PhaseStarting))
			p.deploy(p.grouped("s2", "g"))
			p.old(id)
			return claim("b"), sweep()
		}},
		{name: "claim and a stack that joins the group", locks: only(scope.LevelStack), prepare: func(p *plant) (a, b write) {
			p.deploy(p.grouped("s1", "g"))
			p.poll("a")
			st := p.stack("s2")
			p.deploy(st)
			return claim("b"), write{call: func(p *plant) string { return kind(p.put(st, `{"concurrencyGroup":"g"}`)) }}
		}},
		{name: "claim and cancellation", locks: only(scope.LevelStack), prepare: func(p *plant) (a, b write) {
			st := p.stack("s")
			return claim("a"), cancel(st, p.deploy(st))
		}},
		{name: "claim and pause", free: "one statement of the claim decides, and the pause does not depend on jobs", prepare: func(p *plant) (a, b write) {
			st := p.configured("s", `{}`)
			p.deploy(st)
			return claim("a"), write{call: func(p *plant) string { return kind(p.service.PauseStack(p.t.Context(), p.user, st, true)) }}
		}},
		{name: "claim and a new deployment", free: "the claim takes the first job of the queue, and the new one is the last", prepare: func(p *plant) (a, b write) {
			st := p.stack("s")
			p.deploy(st)
			return claim("a"), enqueue(st)
		}},
		{name: "claim and a lost job", free: "one statement of the claim decides, and one commit ends the job and blocks the stack", prepare: func(p *plant) (a, b write) {
			st := p.stack("s")
			id := p.deploy(st)
			c := p.poll("a")
			p.must(p.heartbeat(c, protocol.PhaseStarting))
			p.deploy(st)
			p.old(id)
			return claim("b"), sweep()
		}},
		{name: "claim and an update of a lost job", locks: only(scope.LevelStack), prepare: func(p *plant) (a, b write) {
			st := p.stack("s")
			_, _, lost := p.lose(st)
			u, err := p.create(lost, st, "")
			p.must(err)
			p.deploy(st)
			p.must(p.db.Write(p.t.Context(), st.Scope(), func(tx *store.Tx) error { // as a sweep does later
				queue, err := tx.StackQueue(st.ID)
				queue.BlockedBy = ""
				return errors.Join(err, tx.SaveStackQueue(queue))
			}))
			return claim("b"), write{call: func(p *plant) string {
				_, err := p.stacks.Start(p.t.Context(), u, nil, 0)
				return kind(err)
			}}
		}},
		{name: "permission to start and cancellation", locks: only(scope.LevelStack), prepare: func(p *plant) (a, b write) {
			st := p.stack("s")
			id := p.deploy(st)
			c := p.poll("a")
			return write{call: func(p *plant) string { return kind(p.heartbeat(c, protocol.PhaseStarting)) }}, cancel(st, id)
		}},
		{name: "result and a lost job", locks: only(scope.LevelStack), prepare: func(p *plant) (a, b write) {
			st := p.stack("s")
			id := p.deploy(st)
			c := p.poll("a")
			p.must(p.heartbeat(c, protocol.PhaseStarting))
			p.old(id)
			return write{call: func(p *plant) string { return kind(p.result(c, workflow.StatusSucceeded)) }}, sweep()
		}},
		{name: "new deployments", locks: only(scope.LevelStack), same: true, prepare: func(p *plant) (a, b write) {
			st := p.configured("s", `{"operationContext":{"options":{"skipIntermediateDeployments":true}}}`)
			p.deploy(st)
			return enqueue(st), enqueue(st)
		}},
		{name: "schedule and its deletion", free: "both change the row of the schedule, or fail", prepare: func(p *plant) (a, b write) {
			st := p.configured("s", `{}`)
			at := time.Now().Add(time.Hour)
			c, err := p.triggers().Create(p.t.Context(), p.user, st, triggers.Spec{Kind: store.TTLSchedule, Once: at, Request: &workflow.Request{Operation: workflow.OperationDestroy, Inherit: true}})
			p.must(err)
			p.must(p.db.Write(p.t.Context(), scope.Stack(st.OrgID, st.ID), func(tx *store.Tx) error {
				c.NextAt = tx.Now()
				c.TryAt = c.NextAt
				return tx.UpdateSchedule(c)
			}))
			return write{call: func(p *plant) string { return kind(p.triggers().Sweep(p.t.Context())) }},
				write{call: func(p *plant) string { return kind(p.triggers().Delete(p.t.Context(), st, c.ID)) }}
		}},
		{name: "repeated delivery and deletion of a webhook", free: "no delivery is stored without the row of its webhook, and its outcome changes only its own", prepare: func(p *plant) (a, b write) {
			o := webhooks.Owner{Org: p.org}
			h, err := p.webhooks().Create(p.t.Context(), p.user, o, webhooks.Change{
				Name: new("hook"), DisplayName: new("hook"), URL: new("http://127.0.0.1:1/"), Format: new(webhooks.FormatRaw), Active: new(true),
			})
			p.must(err)
			d, err := p.webhooks().Ping(p.t.Context(), o, h.Name)
			p.must(err)
			return write{call: func(p *plant) string {
					_, err := p.webhooks().Redeliver(p.t.Context(), o, h.Name, d.ID)
					return kind(err)
				}},
				write{call: func(p *plant) string { return kind(p.webhooks().Delete(p.t.Context(), o, h.Name)) }}
		}},
		{name: "starts of updates", locks: only(scope.LevelStack), same: true, prepare: func(p *plant) (a, b write) {
			st := p.stack("s")
			start := func() write {
				u, err := p.create(p.user, st, "")
				p.must(err)
				return write{call: func(p *plant) string {
					_, err := p.stacks.Start(p.t.Context(), u, nil, 0)
					return kind(err)
				}}
			}
			return start(), start()
		}},
		{name: "checkpoint and end of an update", locks: only(scope.LevelStack), prepare: func(p *plant) (a, b write) {
			st := p.stack("s")
			u := p.started(st)
			return write{call: func(p *plant) string { return kind(p.stacks.Checkpoint(p.t.Context(), u, p.state())) }},
				write{call: func(p *plant) string { return kind(p.stacks.Complete(p.t.Context(), u, stacks.Succeeded)) }}
		}},
		{name: "removal of administrators", locks: only(scope.LevelOrganization), prepare: func(p *plant) (a, b write) {
			p.member("other", identity.RoleAdmin)
			return write{call: func(p *plant) string { return kind(p.identity().RemoveMember(p.t.Context(), p.org, "other")) }},
				write{call: func(p *plant) string {
					return kind(p.identity().SetRole(p.t.Context(), p.org, "admin", identity.RoleMember))
				}}
		}},
		{name: "transfer and a new deployment", locks: only(scope.LevelOrganization, scope.LevelStack), prepare: func(p *plant) (a, b write) {
			st := p.stack("s")
			to, err := p.identity().CreateOrganization(p.t.Context(), "other", "admin")
			p.must(err)
			token, _, err := p.identity().CreateToken(p.t.Context(), identity.NewTokenSpec{Kind: store.PersonalToken, Description: "d", UserID: p.user.User.ID})
			p.must(err)
			p.user, err = p.identity().Authenticate(p.t.Context(), token)
			p.must(err)
			return write{call: func(p *plant) string { return kind(p.stacks.Transfer(p.t.Context(), p.user, st, to)) }}, enqueue(st)
		}},
	}
}

func only(levels ...scope.Level) []scope.Level { return levels }

func claim(agent string) write {
	return write{settle: true, call: func(p *plant) string {
		r := p.request(agent, 0)
		r.PollID = agent
		answer, err := p.service.Poll(p.t.Context(), r.From(p.agent))
		switch {
		case err != nil:
			return kind(err)
		case answer.Claim == nil:
			return nothing
		}
		return answer.Claim.Job.DeploymentID
	}}
}

func cancel(st store.Stack, id string) write {
	return write{call: func(p *plant) string { return kind(p.service.Cancel(p.t.Context(), st, id, "operator", false)) }}
}

func enqueue(st store.Stack) write {
	return write{call: func(p *plant) string {
		d, err := p.service.Create(p.t.Context(), p.user, st, workflow.Request{Operation: workflow.OperationUpdate, Inherit: true}, "api")
		return fmt.Sprint(kind(err), d.Version)
	}}
}

func sweep() write {
	return write{call: func(p *plant) string { return kind(p.service.Sweep(p.t.Context())) }}
}

// kind returns what the caller of a write learns.
func kind(err error) string {
	switch {
	case err == nil:
		return "ok"
	case fault.KindOf(err) != "":
		return string(fault.KindOf(err))
	}
	return err.Error()
}

func (p *plant) identity() *identity.Service { return identity.New(p.db, storetest.Log()) }

func (p *plant) triggers() *triggers.Service { return triggers.New(p.db, p.service, storetest.Log()) }

func (p *plant) webhooks() *webhooks.Service {
	return webhooks.New(p.db, webhooks.Options{Log: storetest.Log(), Receivers: receiver{}})
}

// receiver accepts all requests to webhooks.
type receiver struct{}

func (receiver) Post(context.Context, string, map[string]string, []byte) (outbound.Answer, error) {
	return outbound.Answer{Status: 200}, nil
}

func (receiver) CheckReceiver(string) error { return nil }

// configured returns a stack with deployment settings.
func (p *plant) configured(name, settings string) store.Stack {
	p.t.Helper()
	st := p.stack(name)
	_, err := p.service.ReplaceSettings(p.t.Context(), p.user, st, []byte(settings), "api")
	p.must(err)
	return st
}

// old makes a job silent for long.
func (p *plant) old(deploymentID string) {
	p.t.Helper()
	p.change(deploymentID, func(j *store.Job) { j.LastSeenAt = time.Now().Add(-11 * time.Minute) })
}

func (p *plant) started(st store.Stack) store.Update {
	p.t.Helper()
	u, err := p.create(p.user, st, "")
	p.must(err)
	_, err = p.stacks.Start(p.t.Context(), u, nil, 0)
	p.must(err)
	u, err = p.stacks.FindUpdate(p.t.Context(), st, u.ID)
	p.must(err)
	return u
}

func (p *plant) member(login, role string) {
	p.t.Helper()
	_, err := p.identity().CreateUser(p.t.Context(), identity.NewUser{Login: login, Org: p.org.Name, Role: role})
	p.must(err)
}
