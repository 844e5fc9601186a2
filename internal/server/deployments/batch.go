package deployments

import (
	"context"
	"errors"
	"fmt"

	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// MaxBatch is the number of stacks with which a user can do something at once.
const MaxBatch = 200

// Target is a stack with which a user does something together with others.
type Target struct {
	// StackID is what the user has named, and Stack that stack if the user may see it.
	StackID string
	Stack   store.Stack
	// Refused is why it cannot be done with the stack, or nil.
	Refused error
	// Waits says why the deployment does not start at once, or "".
	Waits string
	// Deployment is the one that was created.
	Deployment store.Deployment
}

// errUnseen is the error for stacks that do not exist, or that the caller may not see.
var errUnseen = fault.NotFound("the stack does not exist, or you may not see it")

// target returns a stack of an organization, and the caller with the permission on it.
func target(tx *store.Tx, p identity.Principal, orgID, id string) (identity.Principal, store.Stack, error) {
	st, err := tx.Stack(id)
	if errors.Is(err, store.ErrNotFound) || err == nil && st.OrgID != orgID {
		err = errUnseen
	}
	if err != nil {
		return p, store.Stack{}, err
	}
	if p, err = p.On(tx, st); err == nil && !p.Can(st, identity.StateRead) {
		return p, store.Stack{}, errUnseen
	}
	return p, st, err
}

// refuse records an error of one target. Errors that are not about the target remain.
func (t *Target) refuse(err error) error {
	if fault.KindOf(err) == "" {
		return err
	}
	t.Refused = err
	return nil
}

func checkBatch(ids []string) error {
	switch {
	case len(ids) == 0:
		return fault.Invalid("select at least one stack")
	case len(ids) > MaxBatch:
		return fault.Invalid("at most %d stacks can be selected at once, and these are %d", MaxBatch, len(ids))
	}
	return nil
}

// BatchProspects returns what [Service.CreateBatch] would do with stacks of an organization now. Among agents that are free
// now, the first stacks come first.
func (s *Service) BatchProspects(ctx context.Context, p identity.Principal, orgID string, ids []string, op workflow.Operation) ([]Target, error) {
	if err := checkBatch(ids); err != nil {
		return nil, err
	}
	list := make([]Target, len(ids))
	err := s.db.ReadLong(ctx, func(tx *store.Tx) error {
		var queue []store.DeploymentJob
		for i, id := range ids {
			list[i] = Target{StackID: id}
			d, err := s.prospect(ctx, tx, p, orgID, &list[i], op)
			if err = list[i].refuse(err); err != nil {
				return err
			}
			queue = append(queue, d)
		}
		reach := p.Reach(orgID)
		facts, err := s.facts(tx, orgID, queue, &reach)
		if err != nil {
			return err
		}
		free := freeIn(facts)
		for i := range list {
			if t := &list[i]; t.Refused == nil {
				t.Waits = free.take(queue[i], facts.Explain(queue[i]))
			}
		}
		return nil
	})
	return list, fault.While(err, "reading what the selected stacks wait for")
}

// prospect returns the deployment that would be created for a target.
func (s *Service) prospect(ctx context.Context, tx *store.Tx, p identity.Principal, orgID string, t *Target, op workflow.Operation) (d store.DeploymentJob, err error) {
	if p, t.Stack, err = target(tx, p, orgID, t.StackID); err != nil {
		return d, err
	}
	if err := p.Check(t.Stack, identity.Operate); err != nil {
		return d, err
	}
	set, _, _, err := s.configure(ctx, tx, t.Stack, batchRequest(op), nil)
	if err != nil {
		return d, err
	}
	if git := set.Git(); (git == nil || git.RepoURL == "") && set.GitHub == nil && set.VCS == nil && set.Image() == "" && op != workflow.OperationDetectDrift {
		return d, fault.Invalid("the settings of the stack do not say where its program is")
	}
	pinned, err := poolOf(tx, orgID, set.AgentPoolID)
	if err != nil {
		return d, err
	}
	pool := set.AgentPoolID
	if !pinned {
		org, err := tx.OrgQueue(orgID)
		if err != nil {
			return d, err
		}
		pool = org.DefaultPool
	}
	row, err := tx.EstateRow(t.StackID, "")
	if err != nil {
		return d, err
	}
	if row.HeldBy != "" && row.LastDeployment == 0 && op.Changes() {
		return d, fault.Conflict("a client outside of the server's deployments holds the stack; a deployment that starts before that ends fails")
	}
	queue, err := tx.StackQueue(t.StackID)
	return store.DeploymentJob{
		Deployment: store.Deployment{OrgID: orgID, StackID: t.StackID, Project: t.Stack.Project, Stack: t.Stack.Name, Version: queue.LastVersion + 1},
		Job: store.Job{
			Status: workflow.StatusNotStarted, Operation: op, PoolID: pool, ConcurrencyGroup: queue.ConcurrencyGroup, QueuedAt: tx.Now().Add(-claimTime),
		},
	}, err
}

// free is how many deployments can start now: in the organization, and in each pool.
type free struct {
	org   int64
	pools map[string]int64
	names map[string]string
}

func freeIn(f waiting.Facts) free {
	out := free{org: f.Cap - f.Active, pools: map[string]int64{}, names: map[string]string{}}
	for id, pool := range f.Pools {
		out.pools[id], out.names[id] = pool.Slots-pool.Active-int64(len(f.Claimable[id])), pool.Name
	}
	return out
}

// take returns why a deployment waits, or "" if it starts.
func (f *free) take(d store.DeploymentJob, why waiting.Why) string {
	if why.Reason != waiting.Next {
		return why.Text
	}
	f.org--
	f.pools[d.Job.PoolID]--
	switch {
	case f.org < 0:
		return "The organization reaches its limit of active deployments; this one starts when one of them has ended."
	case f.pools[d.Job.PoolID] < 0:
		return fmt.Sprintf("The pool %q has no free agent left; the deployment starts when one is free.", f.names[d.Job.PoolID])
	}
	return ""
}

// batchRequest is the request for a deployment with the settings of its stack. A detection of drift changes nothing.
func batchRequest(op workflow.Operation) workflow.Request {
	set := &workflow.Settings{}
	if op == workflow.OperationDetectDrift {
		set.OnlyDetect()
	}
	return workflow.Request{Operation: op, Inherit: true, Settings: set}
}

// CreateBatch queues a deployment for each of the stacks of an organization, each in its own transaction, and returns what it
// has done with each. The permissions are those at this time. batch identifies the request: the caller can repeat it, and no
// stack gets a second deployment.
func (s *Service) CreateBatch(ctx context.Context, p identity.Principal, orgID string, ids []string, op workflow.Operation, batch string) ([]Target, error) {
	if err := checkBatch(ids); err != nil {
		return nil, err
	}
	if batch == "" {
		return nil, fault.Invalid("the request has no batch")
	}
	r := batchRequest(op)
	return each(ids, func(t *Target) error {
		err := s.db.Write(ctx, scope.Stack(orgID, t.StackID), func(tx *store.Tx) error {
			who, st, err := target(tx, p, orgID, t.StackID)
			if err != nil {
				return err
			}
			t.Stack = st
			t.Deployment, err = once(tx, who, st, Repeat{Key: batch, Body: []byte(op)}, func() (store.Deployment, error) {
				return s.createIn(ctx, tx, who, st, r, nil, InitiatorConsole, queueing{batch: batch})
			})
			return err
		})
		if errors.Is(err, store.ErrMoved) { // or it never was in this organization
			return errUnseen
		}
		return err
	})
}

// PauseProspects returns what [Service.PauseBatch] would do with stacks of an organization now.
func (s *Service) PauseProspects(ctx context.Context, p identity.Principal, orgID string, ids []string, paused bool) ([]Target, error) {
	if err := checkBatch(ids); err != nil {
		return nil, err
	}
	var list []Target
	err := s.db.ReadLong(ctx, func(tx *store.Tx) (err error) {
		list, err = each(ids, func(t *Target) error {
			who, st, err := target(tx, p, orgID, t.StackID)
			if err != nil {
				return err
			}
			if t.Stack, err = st, who.Check(st, identity.Operate); err != nil {
				return err
			}
			if _, err := tx.DeploymentSettings(st.ID); err != nil {
				return store.IfMissing(err, fault.Invalid("the stack has no deployment settings"))
			}
			queue, err := tx.StackQueue(st.ID)
			switch {
			case err != nil || queue.Paused != paused:
				return err
			case paused:
				return fault.Conflict("it is paused already")
			default:
				return fault.Conflict("it is not paused")
			}
		})
		return err
	})
	return list, fault.While(err, "reading which of the selected stacks are paused")
}

// PauseBatch pauses or resumes the queues of stacks of an organization, each in its own transaction.
func (s *Service) PauseBatch(ctx context.Context, p identity.Principal, orgID string, ids []string, paused bool) ([]Target, error) {
	return s.ForEach(ctx, p, orgID, ids, identity.Operate, func(who identity.Principal, st store.Stack) error {
		return s.PauseStack(ctx, who, st, paused)
	})
}

// ForEach calls do with each of the stacks of an organization for which the caller has an ability, and with the caller's
// permission on it. It returns what was refused, also by do.
func (s *Service) ForEach(ctx context.Context, p identity.Principal, orgID string, ids []string, need identity.Ability, do func(who identity.Principal, st store.Stack) error) ([]Target, error) {
	if err := checkBatch(ids); err != nil {
		return nil, err
	}
	return each(ids, func(t *Target) error {
		who := p
		err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
			who, t.Stack, err = target(tx, p, orgID, t.StackID)
			return err
		})
		if err == nil {
			err = who.Check(t.Stack, need)
		}
		if err != nil {
			return err
		}
		return do(who, t.Stack)
	})
}

// each does something with stacks, one after another, and records why it cannot be done with some.
func each(ids []string, do func(t *Target) error) ([]Target, error) {
	list := make([]Target, len(ids))
	for i, id := range ids {
		list[i].StackID = id
		if err := list[i].refuse(do(&list[i])); err != nil {
			return list, err
		}
	}
	return list, nil
}
