package evaluations

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// shown is the maximum number of evaluations in a list.
const shown = 200

// EvaluateStack queues evaluations of a stack for all of its audit groups, and returns the number of added ones. Those that
// wait already remain.
func (s *Service) EvaluateStack(ctx context.Context, p identity.Principal, st store.Stack) (int64, error) {
	return store.Write(ctx, s.db, st.Scope(), func(tx *store.Tx) (int64, error) {
		return s.evaluateStack(tx, st, added(tx, store.CauseRequest, p.Name()))
	})
}

// EvaluateGroup queues evaluations of all members of an audit group, and returns the number of added ones. Only
// administrators may.
func (s *Service) EvaluateGroup(ctx context.Context, p identity.Principal, orgID, name string) (int64, error) {
	if !p.CanAdminOrg(orgID) {
		return 0, fault.Forbidden("only administrators of the organization may evaluate all stacks of a policy group")
	}
	return store.Write(ctx, s.db, scope.Organization(orgID), func(tx *store.Tx) (int64, error) {
		g, err := auditGroup(tx, orgID, name)
		if err != nil {
			return 0, err
		}
		return s.evaluateGroup(tx, g, added(tx, store.CauseRequest, p.Name()))
	})
}

func auditGroup(tx *store.Tx, orgID, name string) (store.PolicyGroup, error) {
	g, err := policies.GroupByName(tx, orgID, name)
	if err != nil {
		return g, store.IfMissing(err, fault.NotFound("policy group '%s' not found", termtext.OneLine(name, maxMessage)))
	}
	if g.Mode != policies.Audit || g.EntityType != policies.Stacks {
		return g, fault.Invalid("policy group '%s' is %s; only groups of stacks with mode audit evaluate states", g.Name, g.Mode)
	}
	return g, nil
}

// PageSize is the number of evaluations of a [Page].
const PageSize = 100

// State selects evaluations by their status.
type State string

// The states. The empty one selects all evaluations.
const (
	Unfinished State = "unfinished"
	Failed     State = "failed"
)

// Query selects evaluations of an organization. An empty field selects all.
type Query struct {
	Stack, Group string // project/name of a stack, and name of an audit group
	State        State
	After        string // [Page.Next] of the page before
}

// Page is a page of evaluations, the newest first.
type Page struct {
	Evaluations []store.ShownEvaluation
	Next        string // for [Query.After]; "" on the last page
}

// Page returns a page of the evaluations of an organization, of the stacks that a caller can see.
func (s *Service) Page(ctx context.Context, p identity.Principal, orgID string, q Query) (Page, error) {
	f := store.EvaluationFilter{OrgID: orgID, Reach: p.Reach(orgID), Limit: PageSize + 1, Unfinished: q.State == Unfinished, Failed: q.State == Failed}
	switch q.State {
	case "", Unfinished, Failed:
	default:
		return Page{}, fault.Invalid("the state of policy evaluations must be %s or %s", Unfinished, Failed)
	}
	if q.After != "" {
		at, id, _ := strings.Cut(q.After, "-")
		n, err := strconv.ParseInt(at, 10, 64)
		if err != nil || id == "" {
			return Page{}, fault.Invalid("the page of policy evaluations does not exist; begin with the first one")
		}
		f.Before, f.BeforeID = time.UnixMicro(n), id
	}
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) (out Page, err error) {
		if q.Group != "" {
			g, err := auditGroup(tx, orgID, q.Group)
			if err != nil {
				return out, err
			}
			f.GroupID = g.ID
		}
		if q.Stack != "" {
			project, name, _ := strings.Cut(q.Stack, "/")
			if f.StackID, err = tx.StackID(orgID, project, name); err != nil {
				return out, store.IgnoreMissing(err)
			}
		}
		out.Evaluations, err = tx.Evaluations(f)
		return out, err
	})
	if err != nil {
		return out, fault.During(err, "listing policy evaluations")
	}
	if len(out.Evaluations) > PageSize {
		out.Evaluations = out.Evaluations[:PageSize]
		last := out.Evaluations[PageSize-1]
		out.Next = strconv.FormatInt(last.QueuedAt.UnixMicro(), 10) + "-" + last.ID
	}
	return out, nil
}

// List returns the newest evaluations of a stack.
func (s *Service) List(ctx context.Context, p identity.Principal, st store.Stack) ([]store.ShownEvaluation, error) {
	return s.list(ctx, store.EvaluationFilter{OrgID: st.OrgID, StackID: st.ID, Reach: p.Reach(st.OrgID), Limit: shown})
}

// ListGroup returns the newest evaluations of a group, of the stacks that the caller can see.
func (s *Service) ListGroup(ctx context.Context, p identity.Principal, orgID, name string) ([]store.ShownEvaluation, error) {
	g, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) (store.PolicyGroup, error) { return auditGroup(tx, orgID, name) })
	if err != nil {
		return nil, err
	}
	return s.list(ctx, store.EvaluationFilter{OrgID: orgID, GroupID: g.ID, Reach: p.Reach(orgID), Limit: shown})
}

func (s *Service) list(ctx context.Context, f store.EvaluationFilter) ([]store.ShownEvaluation, error) {
	list, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) ([]store.ShownEvaluation, error) { return tx.Evaluations(f) })
	if err != nil {
		return nil, fmt.Errorf("reading policy evaluations: %w", err)
	}
	return list, nil
}

// Get returns an evaluation of a stack.
func (s *Service) Get(ctx context.Context, st store.Stack, id string) (store.ShownEvaluation, error) {
	e, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) (store.ShownEvaluation, error) { return tx.ShownEvaluation(st.ID, id) })
	return e, store.IfMissing(err, fault.NotFound("policy evaluation '%s' not found", termtext.OneLine(id, maxMessage)))
}

// Cancel requests the end of an evaluation. It is idempotent.
func (s *Service) Cancel(ctx context.Context, st store.Stack, id, by string) error {
	return s.db.Write(ctx, st.Scope(), func(tx *store.Tx) error {
		found, err := tx.ShownEvaluation(st.ID, id)
		if err != nil {
			return store.IfMissing(err, fault.NotFound("policy evaluation '%s' not found", termtext.OneLine(id, maxMessage)))
		}
		e, now := found.Evaluation, tx.Now()
		text := fmt.Sprintf("Cancelled by %s.", by)
		switch e.Status {
		case workflow.StatusNotStarted, workflow.StatusAccepted:
			event := workflow.EventSkip
			if e.Status == workflow.StatusAccepted {
				event = workflow.EventFail
			}
			note(&e, now, text)
			if err := s.end(tx, &e, event, workflow.ReasonCancelled, text, now); err != nil {
				return err
			}
		case workflow.StatusRunning:
			e.CancelRequested, e.ModifiedAt = true, now
			note(&e, now, text)
		default:
			if e.Reason == workflow.ReasonCancelled {
				return nil // a retry
			}
			return fault.Conflict("the policy evaluation has already finished: it is %s", e.Status)
		}
		return save(tx, e)
	})
}
