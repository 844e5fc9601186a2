package deployments

import (
	"context"
	"encoding/json"
	"fmt"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs/integrations"
	"workflowagent/internal/server/webhooks"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// Create queues a deployment on behalf of p. initiator is the trigger as clients show it.
func (s *Service) Create(ctx context.Context, p identity.Principal, st store.Stack, r workflow.Request, initiator string) (store.Deployment, error) {
	return s.CreateOnce(ctx, p, st, r, initiator, Repeat{})
}

// CreateOnce is [Service.Create] for a request that the caller can repeat. A repetition returns the
// deployment of the first request.
func (s *Service) CreateOnce(ctx context.Context, p identity.Principal, st store.Stack, r workflow.Request, initiator string, repeat Repeat) (store.Deployment, error) {
	return store.Write(ctx, s.db, st.Scope(), func(tx *store.Tx) (store.Deployment, error) {
		return once(tx, p, st, repeat, func() (store.Deployment, error) {
			return s.CreateIn(ctx, tx, p, st, r, initiator)
		})
	})
}

// CreateIn queues a deployment in the caller's transaction, which must hold the stack, on behalf of p,
// whose permission on the stack must be loaded; see [identity.Principal.On] and [identity.ActAs].
// initiator is the trigger as clients show it. If CreateIn returns an error with a [fault.Kind], it has
// changed nothing, and the caller may commit.
func (s *Service) CreateIn(ctx context.Context, tx *store.Tx, p identity.Principal, st store.Stack, r workflow.Request, initiator string) (store.Deployment, error) {
	return s.createIn(ctx, tx, p, st, r, nil, initiator, queueing{})
}

// CreateStored is [Service.CreateIn] for a request from [Service.Prepare].
func (s *Service) CreateStored(ctx context.Context, tx *store.Tx, p identity.Principal, st store.Stack, stored []byte, initiator string) (store.Deployment, error) {
	r, err := ParseRequest(stored)
	if err != nil {
		return store.Deployment{}, err
	}
	return s.createIn(ctx, tx, p, st, r, ownSettings(stored), initiator, queueing{})
}

// ParseRequest is [workflow.ParseRequest] with errors for clients.
func ParseRequest(body []byte) (workflow.Request, error) {
	r, err := workflow.ParseRequest(body)
	if err != nil {
		return r, fault.Invalid("%s", termtext.OneLine(err.Error(), maxMessage))
	}
	return r, nil
}

// ownSettings returns the settings in a stored request, or nil if it is invalid or nil.
func ownSettings(stored []byte) *workflow.Settings {
	r, err := workflow.ParseRequest(stored)
	if err != nil {
		return nil
	}
	set, err := r.Own()
	if err != nil {
		return nil
	}
	return set
}

// createIn is [Service.CreateIn] with what the request does not determine. earlier are settings from the
// database, or nil, whose encrypted secrets the request may repeat.
func (s *Service) createIn(ctx context.Context, tx *store.Tx, p identity.Principal, st store.Stack, r workflow.Request, earlier *workflow.Settings, initiator string, q queueing) (store.Deployment, error) {
	if err := p.Check(st, identity.Operate); err != nil {
		return store.Deployment{}, err
	}
	set, from, checkout, err := s.configure(ctx, tx, st, r, earlier)
	if err != nil {
		return store.Deployment{}, err
	}
	if err := checkDelete(p, st, r.Operation, set); err != nil {
		return store.Deployment{}, err
	}
	d := store.Deployment{Operation: r.Operation, Initiator: termtext.OneLine(initiator, maxMessage), RequestedBy: p.User.ID, Requester: p.Name(), InheritSettings: r.Inherit, Batch: q.batch}
	if q.checkout == nil {
		q.checkout = checkout
	}
	if q.checkout != nil && q.checkout.Pull > 0 {
		d.RequestedBy = "" // as for every deployment of a pull request, its code gets no rights of a user
	}
	if d.Trust = string(from.trust(q.checkout)); q.again != nil {
		// Nothing was requested anew, but the settings of the stack can name another source now.
		from.git = q.again.git
		d.Trust = string(from.source(q.again.checkout).atMost(q.again.trust))
	}
	return s.add(ctx, tx, st, d, set, q, p.AuditActor())
}

// queueing is what the queue and the job's definition need besides a deployment and its settings.
type queueing struct {
	checkout *store.VCSCheckout // nil if no repository of an integration contains the program
	group    string             // see [store.Job]
	batch    string             // see [store.Deployment]
	again    *earlierRun        // nil unless the deployment repeats another one
	withheld bool               // the deployment does not open the environments of its settings
}

// add completes and queues a deployment.
func (s *Service) add(ctx context.Context, tx *store.Tx, st store.Stack, d store.Deployment, set *workflow.Settings, q queueing, by audit.Actor) (store.Deployment, error) {
	if err := checkSecrets(set); err != nil {
		return store.Deployment{}, err
	}
	if c := q.checkout; c != nil && (c.Fork || c.Pull > 0 && trust(d.Trust) == trustNone) {
		q.withheld = set.DropEnvironments()
	}
	d.ID, d.OrgID, d.StackID, d.Project, d.Stack, d.CreatedAt = identity.NewID(), st.OrgID, st.ID, st.Project, st.Name, tx.Now()
	if err := s.enqueue(tx, &d, identity.NewID(), set, q); err != nil {
		return d, err
	}
	return d, audit.Record(ctx, tx, audit.Entry{
		OrgID: st.OrgID, Action: audit.DeploymentCreated, Subject: audit.Stack(st), Actor: &by,
		Detail: map[string]any{"deployment": d.ID, "version": d.Version, "operation": d.Operation, "initiator": d.Initiator},
	})
}

// recordCancel records that a deployment is to end.
func recordCancel(ctx context.Context, tx *store.Tx, st store.Stack, job store.Job, force bool) error {
	action := audit.DeploymentCancelled
	if force {
		action = audit.DeploymentForced
	}
	detail := map[string]any{"deployment": job.DeploymentID, "version": job.Version, "status": job.Status}
	return audit.Record(ctx, tx, audit.Entry{OrgID: st.OrgID, Action: action, Subject: audit.Stack(st), Detail: detail})
}

// Prepare checks a request as [Service.CreateIn] would now. It returns it in a form for
// [Service.CreateStored], whose secrets are encrypted. stored is the request that it replaces, or nil. A
// nil request repeats stored.
func (s *Service) Prepare(ctx context.Context, tx *store.Tx, p identity.Principal, st store.Stack, r *workflow.Request, stored []byte) ([]byte, error) {
	if err := p.Check(st, identity.Operate); err != nil {
		return nil, err
	}
	if r == nil {
		again, err := ParseRequest(stored)
		if err != nil {
			return nil, err
		}
		r = &again
	}
	set, _, _, err := s.configure(ctx, tx, st, *r, ownSettings(stored))
	if err != nil {
		return nil, err
	}
	if err := checkDelete(p, st, r.Operation, set); err != nil {
		return nil, err
	}
	if err := checkSecrets(set); err != nil {
		return nil, err
	}
	if _, err := poolOf(tx, st.OrgID, set.AgentPoolID); err != nil {
		return nil, err
	}
	out, err := r.Store(set)
	if err != nil {
		return nil, fmt.Errorf("encrypting a deployment's request: %w", err)
	}
	return out, s.opts.Quota.AdmitText(tx, st.OrgID, int64(len(out)))
}

// checkDelete returns an error if a deployment would delete its stack and its requester may not.
func checkDelete(p identity.Principal, st store.Stack, op workflow.Operation, set *workflow.Settings) error {
	if identity.JobScope(st.ID, op, set.Option(), false)[st.ID]&identity.DeleteStack == 0 {
		return nil
	}
	return p.Check(st, identity.DeleteStack)
}

// configure returns the settings of a deployment with encrypted secrets, how they compare with those of
// the stack, and what the deployment checks out, or nil if its program is not in the repository that the
// stack watches.
func (s *Service) configure(ctx context.Context, tx *store.Tx, st store.Stack, r workflow.Request, earlier *workflow.Settings) (*workflow.Settings, origin, *store.VCSCheckout, error) {
	var base *workflow.Settings
	var repo, watched *integrations.Bound
	stored, _, err := storedSettings(tx, st.ID)
	if err == nil {
		watched, err = s.repositoryOf(tx, st, stored)
	}
	if err == nil && r.Inherit {
		base = stored
		repo, err = s.bound(ctx, tx, st, watched, base, r)
	}
	if err != nil {
		return nil, origin{}, nil, err
	}
	set, err := r.Over(base)
	if err == nil {
		err = validate(set)
	}
	if err == nil {
		err = set.CompleteSource()
	}
	if err == nil {
		err = set.Deployable()
	}
	if err != nil {
		return nil, origin{}, nil, fault.Invalid("%s", err)
	}
	if err := ownGroup(set, stored, r); err != nil {
		return nil, origin{}, nil, err
	}
	if set.OIDC() != nil && s.opts.Issuer != nil {
		if err := s.opts.Issuer.CheckClouds(); err != nil {
			return nil, origin{}, nil, err
		}
	}
	from := originOf(set, stored, watched)
	return set, from, checkoutOf(repo, set), s.seal(ctx, tx, st.ID, set, stored, earlier)
}

func (s *Service) enqueue(tx *store.Tx, d *store.Deployment, jobID string, set *workflow.Settings, q queueing) error {
	pinned, err := poolOf(tx, d.OrgID, set.AgentPoolID)
	if err != nil {
		return err
	}
	org, err := tx.OrgQueue(d.OrgID)
	if err != nil {
		return err
	}
	queue, err := tx.StackQueue(d.StackID)
	if err != nil {
		return err
	}
	doc, err := json.Marshal(set)
	if err != nil {
		return fmt.Errorf("encoding a deployment's configuration: %w", err)
	}
	d.Configuration = string(doc)
	admit := s.opts.Quota.AdmitWork
	if d.Operation == workflow.OperationDestroy { // which frees space
		admit = s.opts.Quota.AdmitRelief
	}
	if err := admit(tx, d.OrgID, int64(len(doc))); err != nil {
		return err
	}
	queue.LastVersion++
	if err := tx.SaveStackQueue(queue); err != nil {
		return err
	}
	d.Version = queue.LastVersion
	job := store.Job{
		ID: jobID, DeploymentID: d.ID, OrgID: d.OrgID, StackID: d.StackID,
		PoolID: set.AgentPoolID, PoolPinned: pinned, Operation: d.Operation, Version: d.Version,
		SkipIntermediate: set.Option().SkipIntermediateDeployments,
		QueueGroup:       q.group,
		ConcurrencyGroup: queue.ConcurrencyGroup,
		Status:           workflow.StatusNotStarted, Epoch: 1, QueuedAt: d.CreatedAt, ModifiedAt: d.CreatedAt,
	}
	if !pinned {
		job.PoolID = org.DefaultPool
	}
	for _, step := range set.Plan(d.Operation) {
		job.Steps = append(job.Steps, store.StepState{Name: step.Name, Status: workflow.StepNotStarted})
	}
	for i := range set.PostRunCommands() {
		job.Steps = append(job.Steps, store.StepState{Name: workflow.PostRunStepName(i), Status: workflow.StepNotStarted})
	}
	if q.withheld {
		addNote(&job, d.CreatedAt, "The environments of the deployment settings are not opened, because the code can be that of a fork")
	}
	if err := tx.InsertDeployment(*d); err != nil {
		return err
	}
	if err := tx.InsertJob(job); err != nil {
		return err
	}
	if c := q.checkout; c != nil {
		c.DeploymentID = d.ID
		if err := tx.InsertCheckout(*c); err != nil {
			return err
		}
	}
	if job.PoolID != "" {
		tx.Notify(pools.QueueTopic, job.PoolID)
	}
	changed(tx, job)
	return s.record(tx, job, webhooks.DeploymentQueued)
}
