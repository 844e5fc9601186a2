package deployments

import (
	"context"
	"errors"
	"fmt"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// Details describes a deployment to clients.
type Details struct {
	store.DeploymentJob
	LatestVersion int64 // version of the stack's newest deployment
	User          store.User
	Settings      *workflow.Settings // nil in lists
	Updates       []store.Update     // only started updates; the operation's own updates first, then newest first
	Message       string             // reason for waiting, or result
	Waiting       *Waiting           // nil in lists, and unless the deployment waits
	Paused        bool               // the stack or organization is paused
	Why           waiting.Why        // zero unless the deployment is queued
}

// Get returns a deployment of a stack by id or version.
func (s *Service) Get(ctx context.Context, st store.Stack, id string) (Details, error) {
	return s.get(ctx, st, id, nil)
}

// GetFor is like [Service.Get]. If the deployment waits for others, the reason names those that the
// caller can see.
func (s *Service) GetFor(ctx context.Context, p identity.Principal, st store.Stack, id string) (Details, error) {
	reach := p.Reach(st.OrgID)
	return s.get(ctx, st, id, &reach)
}

func (s *Service) get(ctx context.Context, st store.Stack, id string, reach *store.Reach) (Details, error) {
	var d Details
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		dj, err := find(tx, st, id)
		if err != nil {
			return err
		}
		facts, err := s.facts(tx, dj.OrgID, []store.DeploymentJob{dj}, reach)
		if err != nil {
			return err
		}
		if d, err = s.summary(tx, dj, facts); err != nil || d.Why.Number() == 0 {
			return err
		}
		d.Waiting, err = considered(tx, d, facts)
		return err
	})
	if err != nil {
		return d, err
	}
	if err := budget.Of(ctx).Take(ctx, settingsCopies*int64(len(d.Configuration))); err != nil {
		return d, err
	}
	if d.Settings, err = workflow.ParseSettings([]byte(d.Configuration)); err != nil {
		return d, fmt.Errorf("parsing the configuration of deployment %s: %w", d.ID, err)
	}
	return d, nil
}

// settingsCopies is the memory needed to decode settings, as a multiple of their size.
const settingsCopies = 8

// Filter selects the deployments of a list.
type Filter struct {
	OrgID          string
	StackID        string // "" selects the stacks of the organization that Reach selects
	Reach          store.Reach
	Page, PageSize int
	Sort           string
	Asc            bool
}

// summaryMemory is the approximate size of a deployment in a list, in bytes.
const summaryMemory = 128 << 10

// List returns a page of the selected deployments, and the total number of deployments.
func (s *Service) List(ctx context.Context, f Filter) ([]Details, int64, error) {
	if f.Page < 1 || f.Page > 1<<20 || f.PageSize < 1 || f.PageSize > 100 {
		return nil, 0, fault.Invalid("Invalid query parameter: page starts at 1, pageSize is 1 to 100")
	}
	if !store.CanSortDeployments(f.Sort) {
		f.Sort = ""
	}
	if err := budget.Of(ctx).Take(ctx, int64(f.PageSize)*summaryMemory); err != nil {
		return nil, 0, err
	}
	var out []Details
	var total int64
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		list, n, err := tx.Deployments(store.DeploymentFilter{
			OrgID: f.OrgID, StackID: f.StackID, Reach: f.Reach, Sort: f.Sort, Asc: f.Asc,
			Limit: f.PageSize, Offset: (f.Page - 1) * f.PageSize,
		})
		if err != nil {
			return err
		}
		facts, err := s.facts(tx, f.OrgID, list, nil)
		if err != nil {
			return err
		}
		total, out = n, make([]Details, 0, len(list))
		for _, dj := range list {
			d, err := s.summary(tx, dj, facts)
			if err != nil {
				return err
			}
			out = append(out, d)
		}
		return nil
	})
	return out, total, fault.While(err, "listing deployments")
}

func (s *Service) summary(tx *store.Tx, dj store.DeploymentJob, facts waiting.Facts) (Details, error) {
	d := Details{DeploymentJob: dj, Message: dj.Job.Message}
	var err error
	if dj.RequestedBy != "" {
		if d.User, err = tx.User(dj.RequestedBy); err != nil && !errors.Is(err, store.ErrNotFound) {
			return d, err
		}
	}
	queue, err := tx.StackQueue(dj.StackID)
	if err != nil {
		return d, err
	}
	org, err := tx.OrgQueue(dj.OrgID)
	if err != nil {
		return d, err
	}
	d.LatestVersion = max(queue.LastVersion, dj.Version)
	d.Paused = queue.Paused || org.Paused
	if dj.Job.Status == workflow.StatusNotStarted {
		d.Why, d.Message = facts.Explain(dj), ""
		if d.Why.Number() != 0 {
			d.Message = d.Why.Message()
		}
	}
	d.Updates, err = updatesOf(tx, dj.Deployment, shownUpdates)
	return d, err
}

// Maximum numbers of updates of a deployment, the newest ones.
const (
	shownUpdates  = 20  // in the deployment
	listedUpdates = 200 // in the list of its updates
)

// updatesOf returns a deployment's started updates. Clients use only the first update. The updates
// of the deployment's own operation therefore precede the updates of other commands. Within each
// group, newer updates precede older ones.
func updatesOf(tx *store.Tx, d store.Deployment, limit int) ([]store.Update, error) {
	list, err := tx.UpdatesOfDeployment(d.ID, limit)
	if err != nil {
		return nil, err
	}
	var own, others []store.Update
	for _, u := range list {
		if updateMatches(d.Operation, store.UpdateKind{Kind: u.Kind, Preview: u.Preview}) {
			own = append(own, u)
		} else {
			others = append(others, u)
		}
	}
	return append(own, others...), nil
}

// Updates returns a deployment's updates in the order of [Details].
func (s *Service) Updates(ctx context.Context, st store.Stack, id string) ([]store.Update, error) {
	if err := budget.Of(ctx).Take(ctx, summaryMemory/shownUpdates*listedUpdates); err != nil {
		return nil, err
	}
	return store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Update, error) {
		dj, err := find(tx, st, id)
		if err != nil {
			return nil, err
		}
		return updatesOf(tx, dj.Deployment, listedUpdates)
	})
}

// Paused reports whether the queue of a stack is paused, and whether its organization's queues are.
func (s *Service) Paused(ctx context.Context, st store.Stack) (stack, org bool, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) error {
		queue, err := tx.StackQueue(st.ID)
		if err != nil {
			return err
		}
		queues, err := tx.OrgQueue(st.OrgID)
		stack, org = queue.Paused, queues.Paused
		return err
	})
	return stack, org, err
}

// OrgMetadata is the state of an organization's queues, as far as they contain stacks that the
// caller can see.
type OrgMetadata struct {
	Paused       bool
	Concurrency  int64
	Counts       map[workflow.Status]int64
	PausedStacks []string // "project/stack"
}

// OrgMetadata returns the state of an organization's queues.
func (s *Service) OrgMetadata(ctx context.Context, orgID string, reach store.Reach) (OrgMetadata, error) {
	m := OrgMetadata{}
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		o, err := tx.Organization(orgID)
		if err != nil {
			return err
		}
		m.Concurrency = s.cap(o.DeploymentQuota)
		queue, err := tx.OrgQueue(orgID)
		if err != nil {
			return err
		}
		m.Paused = queue.Paused
		if m.Counts, err = tx.CountDeployments(orgID, reach); err != nil {
			return err
		}
		m.PausedStacks, err = tx.PausedStacks(reach)
		return err
	})
	return m, err
}

// updateMatches reports whether a started update performs a deployment's own operation.
func updateMatches(op workflow.Operation, u store.UpdateKind) bool {
	switch op {
	case workflow.OperationUpdate, workflow.OperationRemediateDrift:
		return u.Kind == "update" && !u.Preview
	case workflow.OperationPreview:
		return u.Preview && (u.Kind == "preview" || u.Kind == "update")
	case workflow.OperationRefresh:
		return u.Kind == "refresh" && !u.Preview
	case workflow.OperationDestroy:
		return u.Kind == "destroy" && !u.Preview
	case workflow.OperationDetectDrift:
		return u.Kind == "refresh" || u.Kind == "preview"
	default:
		return false
	}
}
