package deployments

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// Details is a deployment as clients see it.
type Details struct {
	store.DeploymentJob
	LatestVersion int64 // of the stack's newest deployment
	User          store.User
	Settings      *workflow.Settings // nil in lists
	Updates       []store.Update     // started ones; the operation's own first, then newest first
	Message       string             // why it waits or how it ended
	Paused        bool               // its stack or organization is paused
}

// Get returns a deployment of a stack.
func (s *Service) Get(ctx context.Context, st store.Stack, id string) (Details, error) {
	return s.details(ctx, func(tx *store.Tx) (store.DeploymentJob, error) { return find(tx, st, id) })
}

// GetVersion returns a deployment of a stack by version.
func (s *Service) GetVersion(ctx context.Context, st store.Stack, version int64) (Details, error) {
	return s.details(ctx, func(tx *store.Tx) (store.DeploymentJob, error) {
		found, err := tx.DeploymentByVersion(st.ID, version)
		if errors.Is(err, store.ErrNotFound) {
			return store.DeploymentJob{}, fault.NotFound("Not Found: Deployment '#%d' not found", version)
		}
		if err != nil {
			return store.DeploymentJob{}, err
		}
		return find(tx, st, found.ID)
	})
}

func (s *Service) details(ctx context.Context, find func(*store.Tx) (store.DeploymentJob, error)) (Details, error) {
	var d Details
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		dj, err := find(tx)
		if err != nil {
			return err
		}
		d, err = s.summary(tx, dj)
		return err
	})
	if err != nil {
		return d, err
	}
	if err := budget.Of(ctx).Take(ctx, settingsCopies*int64(len(d.Configuration))); err != nil {
		return d, err
	}
	if d.Settings, err = workflow.ParseSettings([]byte(d.Configuration)); err != nil {
		return d, fmt.Errorf("configuration of deployment %s: %w", d.ID, err)
	}
	return d, nil
}

// settingsCopies is the memory that decoding settings needs, as a multiple of their text.
const settingsCopies = 8

// Filter selects the deployments of a list.
type Filter struct {
	Page, PageSize int
	Sort           string
	Asc            bool
}

// summaryMemory is the approximate size of a deployment in a list, in bytes.
const summaryMemory = 128 << 10

// List returns a page of the deployments of an organization, or of stackID, and their total number.
func (s *Service) List(ctx context.Context, orgID, stackID string, f Filter) ([]Details, int64, error) {
	if f.Page < 1 || f.Page > 1<<20 || f.PageSize < 1 || f.PageSize > 100 {
		return nil, 0, fault.Invalid("Bad Request: Invalid query parameter: page starts at 1, pageSize is 1 to 100")
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
			OrgID: orgID, StackID: stackID, Sort: f.Sort, Asc: f.Asc,
			Limit: f.PageSize, Offset: (f.Page - 1) * f.PageSize,
		})
		if err != nil {
			return err
		}
		total, out = n, make([]Details, 0, len(list))
		for _, dj := range list {
			d, err := s.summary(tx, dj)
			if err != nil {
				return err
			}
			out = append(out, d)
		}
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("listing deployments: %w", err)
	}
	return out, total, nil
}

func (s *Service) summary(tx *store.Tx, dj store.DeploymentJob) (Details, error) {
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
		w, err := s.whyQueued(tx, dj.Deployment, dj.Job)
		if err != nil {
			return d, err
		}
		d.Message = w.Text
	}
	d.Updates, err = updatesOf(tx, dj.Deployment)
	return d, err
}

// shownUpdates bounds the updates shown of a deployment, newest first.
const shownUpdates = 20

// updatesOf returns a deployment's started updates. Clients use only the first, so the operation's
// own update precedes those of other commands, and newer ones precede older ones.
func updatesOf(tx *store.Tx, d store.Deployment) ([]store.Update, error) {
	list, err := tx.UpdatesOfDeployment(d.ID, shownUpdates)
	if err != nil {
		return nil, err
	}
	matches := func(u store.Update) bool {
		return updateMatches(d.Operation, store.UpdateKind{Kind: u.Kind, Preview: u.Preview})
	}
	slices.SortStableFunc(list, func(a, b store.Update) int {
		if ma, mb := matches(a), matches(b); ma != mb {
			if ma {
				return -1
			}
			return 1
		}
		return 0
	})
	return list, nil
}

// Updates returns a deployment's updates in the order of [Details].
func (s *Service) Updates(ctx context.Context, st store.Stack, id string) ([]store.Update, error) {
	var out []store.Update
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		dj, err := find(tx, st, id)
		if err != nil {
			return err
		}
		out, err = updatesOf(tx, dj.Deployment)
		return err
	})
	return out, err
}

// StackMetadata is the state of a stack's queue.
type StackMetadata struct{ StackPaused, OrgPaused bool }

// StackMetadata returns the state of a stack's queue.
func (s *Service) StackMetadata(ctx context.Context, st store.Stack) (StackMetadata, error) {
	var m StackMetadata
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		queue, err := tx.StackQueue(st.ID)
		if err != nil {
			return err
		}
		org, err := tx.OrgQueue(st.OrgID)
		m = StackMetadata{queue.Paused, org.Paused}
		return err
	})
	return m, err
}

// OrgMetadata is the state of an organization's queues.
type OrgMetadata struct {
	Paused       bool
	Concurrency  int64
	Counts       map[workflow.Status]int64
	PausedStacks []string // "project/stack"
}

// OrgMetadata returns the state of an organization's queues.
func (s *Service) OrgMetadata(ctx context.Context, orgID string) (OrgMetadata, error) {
	m := OrgMetadata{Concurrency: s.opts.Cap}
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		queue, err := tx.OrgQueue(orgID)
		if err != nil {
			return err
		}
		m.Paused = queue.Paused
		if m.Counts, err = tx.CountDeployments(orgID); err != nil {
			return err
		}
		m.PausedStacks, err = tx.PausedStacks(orgID)
		return err
	})
	return m, err
}
