package deployments

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// Stages of deployments.
const (
	StageActive   = store.Active
	StageQueued   = store.Queued
	StageFinished = store.Finished
)

// PageSize is the number of deployments on a page of [Service.Page].
const PageSize = 50

// Query selects the deployments of [Service.Page]. An empty field selects all.
type Query struct {
	Stage     store.Stage // required
	StackID   string
	Project   string
	Stack     string // name, of the project
	State     string // a state of package waiting, or [StateBad] or [StateStarted]
	Operation workflow.Operation
	PoolID    string
	AgentID   string
	Initiator string
	Mine      bool   // only those that the caller requested
	Who       string // login of the user who requested them
	Batch     string // that [Service.CreateBatch] has started
	Newest    bool   // only the newest deployment of each stack
	Since     time.Time
	// Text selects deployments by their number, or by a part of their requester, branch, commit or
	// message. A page then considers at most [Searched] deployments, and can be empty although there are
	// more pages.
	Text string
	// After is the Next of the page before.
	After string
	Limit int // at most PageSize; 0 means PageSize
}

// Listed is a deployment in a list.
type Listed struct {
	store.DeploymentJob
	State string      // a state of package waiting
	Why   waiting.Why // zero unless the deployment is queued
	// Changes are the numbers of changed resources by operation of the engine; nil if they are unknown.
	Changes map[string]int64
	Message string // what the client of its update says about it
	Written int64  // version of the stack that its update wrote, or 0
}

// Listing is a page of deployments.
type Listing struct {
	Items []Listed
	Next  string // selects the next page; "" on the last
}

// errNoOrg is the error of callers who have no role in an organization.
var errNoOrg = fault.Forbidden("you are not a member of the organization")

// Page returns a page of an organization's deployments that the caller can see: queued ones in the
// order of the queue, others newest first.
func (s *Service) Page(ctx context.Context, p identity.Principal, orgID string, q Query) (Listing, error) {
	var out Listing
	if p.Role(orgID) == "" {
		return out, errNoOrg
	}
	f, err := q.filter(p, orgID)
	if err != nil {
		return out, err
	}
	if err := budget.Of(ctx).Take(ctx, int64(f.Limit)*listedMemory); err != nil {
		return out, err
	}
	err = s.db.ReadLong(ctx, func(tx *store.Tx) error {
		found, err := q.resolve(tx, &f)
		if err != nil || !found {
			return err
		}
		out, err = s.stage(tx, f, q.Text)
		return err
	})
	return out, fault.While(err, "listing deployments")
}

// resolve lets a filter select by the ids of the stack and the user that a query names. It reports whether they exist.
func (q Query) resolve(tx *store.Tx, f *store.StageFilter) (bool, error) {
	if q.Stack != "" {
		id, err := tx.StackID(f.OrgID, q.Project, q.Stack)
		if f.StackID = id; err != nil {
			return false, store.IgnoreMissing(err)
		}
	}
	if q.Who != "" {
		u, err := tx.UserByLogin(q.Who)
		if err != nil || f.RequestedBy != "" && f.RequestedBy != u.ID {
			return false, store.IgnoreMissing(err)
		}
		f.RequestedBy = u.ID
	}
	return true, tx.NarrowStage(f, q.Project)
}

// stage returns a page of deployments, of those that contain a text unless it is "".
func (s *Service) stage(tx *store.Tx, f store.StageFilter, text string) (out Listing, err error) {
	var list []store.DeploymentJob
	var next store.StagePosition
	if text != "" {
		list, next, err = search(tx, f, text)
	} else {
		list, next, err = firstPage(tx, f)
	}
	if err != nil {
		return out, err
	}
	if next.DeploymentID != "" {
		out.Next = cursor(next)
	}
	out.Items, err = s.listed(tx, f.OrgID, list, f.Reach)
	return out, err
}

// firstPage returns a page of deployments, and the position of its last one if there are more.
func firstPage(tx *store.Tx, f store.StageFilter) (list []store.DeploymentJob, next store.StagePosition, err error) {
	list, err = tx.DeploymentsInStage(f)
	if len(list) == f.Limit {
		list = list[:f.Limit-1]
		last := list[len(list)-1]
		next = store.StagePosition{QueuedAt: last.Job.QueuedAt, DeploymentID: last.ID}
	}
	return list, next, err
}

// listedMemory is the approximate size of a deployment in a [Listing], in bytes.
const listedMemory = 16 << 10

func (s *Service) listed(tx *store.Tx, orgID string, list []store.DeploymentJob, reach store.Reach) ([]Listed, error) {
	facts, err := s.facts(tx, orgID, list, &reach)
	if err != nil {
		return nil, err
	}
	ids, out := make([]string, len(list)), make([]Listed, len(list))
	byID := map[string]*Listed{}
	for i, dj := range list {
		out[i] = Listed{DeploymentJob: dj, State: waiting.State(dj.Job)}
		if dj.Job.Status == workflow.StatusNotStarted {
			out[i].Why = facts.Explain(dj)
		}
		ids[i], byID[dj.ID] = dj.ID, &out[i]
	}
	updates, err := tx.ChangesOfDeployments(ids)
	if err != nil {
		return nil, err
	}
	for _, u := range updates {
		d := byID[u.DeploymentID]
		if !updateMatches(d.Operation, store.UpdateKind{Kind: u.Kind, Preview: u.Preview}) {
			continue
		}
		d.Message = u.Message
		if !u.Preview {
			d.Written = u.Version
		}
		if u.ResourceChanges == "" {
			continue
		}
		var changes map[string]int64
		if json.Unmarshal([]byte(u.ResourceChanges), &changes) == nil {
			d.Changes = changes
		}
	}
	return out, nil
}

// filter returns the filter of a query, with one more deployment than the page.
func (q Query) filter(p identity.Principal, orgID string) (store.StageFilter, error) {
	f := store.StageFilter{
		OrgID: orgID, Stage: q.Stage, Reach: p.Reach(orgID), StackID: q.StackID, Operation: q.Operation,
		PoolID: q.PoolID, AgentID: q.AgentID, Initiator: q.Initiator, Batch: q.Batch, Newest: q.Newest, Since: q.Since, Limit: PageSize + 1,
	}
	if q.Limit > 0 && q.Limit < PageSize {
		f.Limit = q.Limit + 1
	}
	switch f.Stage {
	case StageActive, StageQueued, StageFinished:
	default:
		return f, fault.Invalid("%q is not a stage of deployments", q.Stage)
	}
	if len(q.Text) > maxText {
		return f, fault.Invalid("the text is longer than %d bytes", maxText)
	}
	if len(q.Batch) > maxKey {
		return f, fault.Invalid("the batch is longer than %d bytes", maxKey)
	}
	if q.Mine {
		if f.RequestedBy = p.User.ID; f.RequestedBy == "" {
			return f, fault.Invalid("only users have requested deployments")
		}
	}
	var err error
	if f.Outcome, err = outcomeOf(q.State); err != nil {
		return f, err
	}
	f.Unsuccessful = slices.Contains([]string{StateBad, waiting.StateFailed, waiting.StateLost, waiting.StateCancelled, waiting.StateSkipped, waiting.StateDrift}, q.State)
	if q.After == "" {
		return f, nil
	}
	at, id, ok := strings.Cut(q.After, "-")
	us, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil || id == "" {
		return f, fault.Invalid("the page %q does not exist", q.After)
	}
	f.After = store.StagePosition{QueuedAt: time.UnixMicro(us), DeploymentID: id}
	return f, nil
}

// States of several kinds of deployments, for filters.
const (
	StateBad     = "bad"     // failed or lost
	StateStarted = "started" // claimed or running
)

// outcomeOf returns the jobs in a state.
func outcomeOf(state string) (o store.Outcome, err error) {
	switch state {
	case "":
	case waiting.StateQueued:
		o.Statuses = []workflow.Status{workflow.StatusNotStarted}
	case waiting.StateClaimed:
		o.Statuses = []workflow.Status{workflow.StatusAccepted}
	case waiting.StateRunning:
		o.Statuses = []workflow.Status{workflow.StatusRunning}
	case StateStarted:
		o.Statuses = []workflow.Status{workflow.StatusAccepted, workflow.StatusRunning}
	case waiting.StateSucceeded:
		o.Statuses, o.Drift = []workflow.Status{workflow.StatusSucceeded}, new(bool)
	case waiting.StateDrift:
		o.Drift = new(true)
	case waiting.StateCancelled:
		o.Reasons = []workflow.Reason{workflow.ReasonCancelled}
	case waiting.StateSkipped:
		o.Statuses, o.NotReasons = []workflow.Status{workflow.StatusSkipped}, []workflow.Reason{workflow.ReasonCancelled}
	case waiting.StateLost:
		o.Statuses, o.Reasons = []workflow.Status{workflow.StatusFailed}, []workflow.Reason{workflow.ReasonLost}
	case waiting.StateFailed:
		o.Statuses, o.NotReasons = []workflow.Status{workflow.StatusFailed}, []workflow.Reason{workflow.ReasonCancelled, workflow.ReasonLost}
		o.Drift = new(bool)
	case StateBad:
		o.Statuses, o.NotReasons = []workflow.Status{workflow.StatusFailed}, []workflow.Reason{workflow.ReasonCancelled}
		o.Drift = new(bool)
	default:
		return o, fault.Invalid("%q is not a state of deployments", state)
	}
	return o, nil
}

func cursor(at store.StagePosition) string {
	return strconv.FormatInt(at.QueuedAt.UnixMicro(), 10) + "-" + at.DeploymentID
}

// Queues is the state of an organization's queues, or of one stack's.
type Queues struct {
	// Active is the number of the organization's claimed and running deployments; Cap bounds it.
	Active, Cap int64
	// Running and Queued count the deployments that the caller can see, up to CountLimit.
	Running, Queued int64
	Org             store.OrgQueue
	Stack           store.StackQueue // zero without a stack
}

// CountLimit is the number up to which deployments are counted.
const CountLimit = 10_000

// Queues returns the state of an organization's queues. stackID "" counts the deployments of all
// stacks that the caller can see.
func (s *Service) Queues(ctx context.Context, p identity.Principal, orgID, stackID string) (Queues, error) {
	l := Queues{}
	if p.Role(orgID) == "" {
		return l, errNoOrg
	}
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if l, err = s.orgQueues(tx, orgID); err != nil {
			return err
		}
		f := store.StageFilter{OrgID: orgID, StackID: stackID, Reach: p.Reach(orgID), Stage: StageActive}
		if l.Running, err = tx.CountInStage(f, CountLimit); err != nil {
			return err
		}
		f.Stage = StageQueued
		if l.Queued, err = tx.CountInStage(f, CountLimit); err != nil || stackID == "" {
			return err
		}
		l.Stack, err = tx.StackQueue(stackID)
		return err
	})
	return l, fault.While(err, "counting deployments")
}

// Unended are the numbers of an organization's deployments that have not ended, for the navigation.
type Unended struct {
	// Open counts the queued and running deployments, up to [OpenLimit].
	Open int64
	// Paused reports whether all deployments of the organization are paused.
	Paused bool
}

// OpenLimit is the number up to which [Service.Open] counts.
const OpenLimit = 100

// Open counts the deployments of an organization that have not ended, for callers who see all stacks.
func (s *Service) Open(ctx context.Context, p identity.Principal, orgID string) (w Unended, err error) {
	if p.Role(orgID) == "" {
		return w, errNoOrg
	}
	err = s.db.Read(ctx, func(tx *store.Tx) error {
		queue, err := tx.OrgQueue(orgID)
		if err != nil {
			return err
		}
		w.Paused = queue.Paused
		w.Open, err = tx.CountOpenJobs(orgID, p.Reach(orgID), OpenLimit)
		return err
	})
	return w, fault.While(err, "counting deployments")
}

// UsedStacks returns stacks of an organization that the caller created or deployed lately.
func (s *Service) UsedStacks(ctx context.Context, p identity.Principal, orgID string, limit int) ([]store.Stack, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Stack, error) {
		return tx.UsedStacks(orgID, p.User.ID, p.Reach(orgID), limit)
	})
}

// CancelQueued cancels those of the deployments that are still queued and that the caller may
// cancel, one after another. It returns the number of cancelled ones, even with an error.
func (s *Service) CancelQueued(ctx context.Context, p identity.Principal, orgID string, ids []string) (int, error) {
	if len(ids) > PageSize {
		return 0, fault.Invalid("at most %d deployments can be cancelled at once", PageSize)
	}
	n := 0
	for _, id := range ids {
		job, err := s.jobOfDeployment(ctx, id)
		if fault.KindOf(err) == fault.KindNotFound || err == nil && job.OrgID != orgID {
			continue
		}
		cancelled := false
		if err == nil {
			cancelled, err = store.Write(ctx, s.db, scope.Stack(orgID, job.StackID), func(tx *store.Tx) (bool, error) {
				return s.cancelQueued(ctx, tx, p, orgID, id)
			})
		}
		if err != nil {
			return n, fmt.Errorf("cancelling queued deployments: %w", err)
		}
		if cancelled {
			n++
		}
	}
	return n, nil
}

func (s *Service) cancelQueued(ctx context.Context, tx *store.Tx, p identity.Principal, orgID, id string) (bool, error) {
	job, err := tx.JobOfDeployment(id)
	if err != nil || job.OrgID != orgID || job.Status != workflow.StatusNotStarted {
		return false, store.IgnoreMissing(err)
	}
	st, err := tx.Stack(job.StackID)
	if err != nil {
		return false, store.IgnoreMissing(err)
	}
	if p, err = p.On(tx, st); err != nil || !p.Can(st, identity.Operate) {
		return false, err
	}
	if err := recordCancel(ctx, tx, st, job, false); err != nil {
		return false, err
	}
	return true, s.skip(tx, job, workflow.ReasonCancelled, fmt.Sprintf("Cancelled by %s.", p.Name()), tx.Now())
}
