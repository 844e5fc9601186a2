package deployments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
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
	var d Details
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		dj, err := find(tx, st, id)
		if err != nil {
			return err
		}
		facts, err := s.facts(tx, dj.OrgID, []store.DeploymentJob{dj}, nil)
		if err != nil {
			return err
		}
		if d, err = s.summary(tx, dj, facts); err != nil || d.Why.Number() == 0 {
			return err
		}
		d.Waiting, err = queued{tx: tx, d: dj.Deployment, job: dj.Job}.considered(d.Why.Reason)
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
	m := OrgMetadata{Concurrency: s.opts.Cap}
	err := s.db.Read(ctx, func(tx *store.Tx) error {
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

// measuredAfter is less than the time after a job's end at which the quota measures its log.
const measuredAfter = 30 * time.Second

// logTarget returns the log stream to which a callback may deliver log. The current claim may
// deliver log while the job runs and for a limited time after its end. For a running job, the answer
// can be up to writerAge old.
func (s *Service) logTarget(ctx context.Context, p identity.Principal, jobID string, step int) (string, error) {
	if steps, ok := s.writers.steps(p, jobID); ok && step >= 0 && step <= steps {
		return joblog.Key(jobID, p.Epoch, step), nil
	}
	read := time.Now()
	job, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) (store.Job, error) { return callback(tx, p, jobID) })
	if err != nil {
		return "", err
	}
	if step < 0 || step > len(job.Steps) {
		return "", fault.Invalid("the job has log streams 0 to %d", len(job.Steps))
	}
	if job.Status.Final() {
		err = s.acceptLate(ctx, job)
	} else {
		s.writers.add(job, read)
	}
	return joblog.Key(job.ID, job.Epoch, step), err
}

// acceptLate returns an error if a finished job may deliver no more log.
func (s *Service) acceptLate(ctx context.Context, job store.Job) error {
	since, err := store.Read(ctx, s.db, func(tx *store.Tx) (time.Duration, error) { return tx.Now().Sub(job.EndedAt), nil })
	switch {
	case err != nil:
		return err
	case since > s.opts.Evidence:
		return ended(job)
	case since > measuredAfter:
		return s.db.Write(ctx, scope.Stack(job.OrgID, job.StackID), func(tx *store.Tx) error { return tx.MeasureLogAgain(job.ID) })
	}
	return nil
}

// PutLog stores raw log at an offset of a step's stream. gap reports that bytes before the offset
// are missing. ack contains the offset from which to continue.
func (s *Service) PutLog(ctx context.Context, p identity.Principal, jobID string, step int, offset int64, framed []byte) (ack protocol.LogAck, gap bool, err error) {
	if offset < 0 {
		return ack, false, fault.Invalid("the offset must not be negative")
	}
	key, err := s.logTarget(ctx, p, jobID, step)
	if err != nil {
		return ack, false, err
	}
	ack, err = s.logs.Put(ctx, key, offset, framed)
	s.readers.note(jobID)
	if errors.Is(err, joblog.ErrGap) {
		return ack, true, nil
	}
	return ack, false, err
}

// PostLines stores log in the JSON form of stock runners.
func (s *Service) PostLines(ctx context.Context, p identity.Principal, jobID string, step int, r protocol.LogLines) error {
	if r.Offset < 0 {
		return fault.Invalid("the offset must not be negative")
	}
	key, err := s.logTarget(ctx, p, jobID, step)
	if err != nil {
		return err
	}
	defer s.readers.note(jobID)
	return s.logs.PutLines(ctx, key, r)
}

// logInterval is the interval at which the log is read again for a waiting reader. It bounds the
// delay of the deployment's end, and of lines that another server received.
const logInterval = 250 * time.Millisecond

// Log returns a page of a deployment's log after a continuation token; "" starts at the beginning.
// If there are no new lines, Log waits for new lines or for the end of the deployment, but at most
// for wait.
func (s *Service) Log(ctx context.Context, st store.Stack, deploymentID, token string, wait time.Duration) (joblog.Page, error) {
	deadline := time.Now().Add(wait)
	var wake <-chan struct{}
	for {
		v, err := s.view(ctx, st, deploymentID)
		if err != nil {
			return joblog.Page{}, err
		}
		if wake == nil {
			var leave func()
			wake, leave = s.readers.join(v.Job.ID)
			defer leave()
		}
		page, err := s.logs.Read(ctx, v, token)
		if err != nil || len(page.Lines) > 0 || page.Next == "" || !time.Now().Before(deadline) {
			return page, err
		}
		token = page.Next
		select {
		case <-wake:
		case <-time.After(logInterval):
		case <-ctx.Done():
			return joblog.Page{}, ctx.Err()
		case <-s.stopping:
			return page, nil
		}
	}
}

// StepLog returns log lines of one step of the current claim. offset is a line number.
func (s *Service) StepLog(ctx context.Context, st store.Stack, deploymentID string, job, step int, offset int64, count int) (joblog.StepPage, error) {
	v, err := s.view(ctx, st, deploymentID)
	if err != nil {
		return joblog.StepPage{}, err
	}
	if job != 0 {
		return joblog.StepPage{}, fault.NotFound("the deployment has no job %d", job)
	}
	return s.logs.ReadStep(ctx, v, step, offset, count)
}

func (s *Service) view(ctx context.Context, st store.Stack, deploymentID string) (joblog.View, error) {
	var v joblog.View
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		dj, err := find(tx, st, deploymentID)
		if err != nil {
			return err
		}
		v = joblog.View{Now: tx.Now(), Job: dj.Job}
		if dj.Job.Status == workflow.StatusNotStarted {
			if v.Wait, err = s.whyQueued(tx, dj); err != nil {
				return err
			}
		}
		kinds, err := tx.UpdateKindsOfDeployment(dj.ID)
		if err != nil {
			return err
		}
		for _, k := range kinds {
			v.Linked = v.Linked || updateMatches(dj.Operation, k)
		}
		return nil
	})
	return v, err
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

// LogJob returns the job whose log [Service.Logs] contains.
func (s *Service) LogJob(ctx context.Context, st store.Stack, deploymentID string) (store.Job, error) {
	dj, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.DeploymentJob, error) { return find(tx, st, deploymentID) })
	return dj.Job, err
}

// Logs returns the logs of jobs. Callers must obtain the job from [Service.LogJob], which finds it
// only within the stack.
func (s *Service) Logs() *joblog.Store { return s.logs }
