package deployments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

type claimant struct {
	TokenID string // of the pool token that authenticated the poll
	OrgID   string
	Agent   pools.Sighting
	PollID  string
	Stock   bool // uses only the stock API
}

// Claim is a claimed job.
type Claim struct {
	Job   store.Job
	Token string // authenticates the callbacks of this job and epoch
}

var errNothing = errors.New("no job can be claimed")

// claim assigns the pool's next job in one transaction, or returns errNothing. A repeated poll
// receives the same job while its claim is current and the job has not started.
func (s *Service) claim(ctx context.Context, c claimant) (*Claim, error) {
	token, hash := identity.NewToken()
	var job store.Job
	err := s.db.Write(ctx, func(tx *store.Tx) error {
		now, err := tx.LeaseTime()
		if err != nil {
			return err
		}
		// A held poll's token might have become invalid since the poll began.
		if err := identity.CheckLive(tx, c.TokenID, now); err != nil {
			return err
		}
		if job, err = reclaim(tx, c, now); errors.Is(err, store.ErrNotFound) {
			job, err = s.take(tx, c, now)
		}
		if err != nil {
			return err
		}
		return tx.InsertToken(store.Token{
			ID: identity.NewID(), Hash: hash, Kind: store.RunnerToken, OrgID: job.OrgID, PoolID: job.PoolID,
			JobID: job.ID, Epoch: job.Epoch, DeploymentID: job.DeploymentID, StackID: job.StackID, CreatedAt: now,
		})
	})
	if err != nil {
		return nil, err
	}
	s.log.WithFields(logrus.Fields{
		"job_id": job.ID, "deployment_id": job.DeploymentID, "pool": job.PoolID, "agent": c.Agent.Hostname, "epoch": job.Epoch,
	}).Info("job claimed")
	return &Claim{job, token}, nil
}

// reclaim returns the job in an earlier response to the same poll.
func reclaim(tx *store.Tx, c claimant, now time.Time) (store.Job, error) {
	if c.PollID == "" {
		return store.Job{}, store.ErrNotFound
	}
	job, err := tx.JobByPoll(c.Agent.PoolID, c.PollID)
	if err != nil {
		return store.Job{}, err
	}
	if job.AgentID != c.Agent.AgentID {
		return store.Job{}, store.ErrNotFound
	}
	job.LastSeenAt = now
	return job, tx.SaveJob(job)
}

func (s *Service) take(tx *store.Tx, c claimant, now time.Time) (store.Job, error) {
	full, err := s.full(tx, c.OrgID)
	if err != nil {
		return store.Job{}, err
	}
	if full {
		return store.Job{}, errNothing
	}
	job, err := tx.NextJob(c.Agent.PoolID)
	if errors.Is(err, store.ErrNotFound) {
		return store.Job{}, errNothing
	}
	if err != nil {
		return store.Job{}, err
	}
	if err := apply(&job, workflow.EventClaim, now); err != nil {
		return store.Job{}, err
	}
	job.ClaimedAt, job.LastSeenAt = now, now
	job.AgentID, job.AgentHostname, job.AgentVersion = c.Agent.AgentID, c.Agent.Hostname, c.Agent.Version
	job.PollID, job.Stock = c.PollID, c.Stock
	// The time of a pool's last claim is only displayed, so a precision of one second is
	// sufficient.
	if s.claims.stale(job.PoolID, time.Now()) {
		if err := tx.TouchPool(job.PoolID, now); err != nil && !errors.Is(err, store.ErrNotFound) {
			return store.Job{}, err
		}
	}
	if err := tx.SaveClaim(job); err != nil {
		return store.Job{}, err
	}
	s.active.claimed(c.OrgID)
	return job, nil
}

// full reports whether an organization has reached its limit of active jobs. Only claims add active
// jobs. A server that does not share its database therefore knows an upper bound: the last count
// plus its own claims. It counts again only when that bound reaches the limit.
func (s *Service) full(tx *store.Tx, orgID string) (bool, error) {
	if !s.db.Shared() && s.active.below(orgID, s.opts.Cap) {
		return false, nil
	}
	n, err := tx.CountActiveJobs(orgID)
	if err != nil {
		return false, err
	}
	s.active.counted(orgID, n)
	return n >= s.opts.Cap, nil
}

type atMost struct {
	mu sync.Mutex
	n  map[string]int64
}

// below reports whether an organization's upper bound is known and less than limit.
func (a *atMost) below(orgID string, limit int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, known := a.n[orgID]
	return known && n < limit
}

func (a *atMost) counted(orgID string, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n[orgID] = n
}

func (a *atMost) claimed(orgID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n[orgID]++
}

type recent struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// stale reports whether at least a second has passed since it last returned true for key.
func (r *recent) stale(key string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.last[key]) < time.Second {
		return false
	}
	r.last[key] = now
	return true
}

// handBack requeues a job whose claim was not delivered, unless the agent has since polled or sent
// a request for the job.
func (s *Service) handBack(ctx context.Context, c *Claim) {
	err := s.db.Write(ctx, func(tx *store.Tx) error {
		job, err := tx.Job(c.Job.ID)
		if err != nil {
			return err
		}
		untouched := job.Status == workflow.StatusAccepted && job.Epoch == c.Job.Epoch &&
			job.LastSeenAt.UnixMicro() == c.Job.LastSeenAt.UnixMicro()
		if !untouched {
			return nil
		}
		return requeue(tx, &job, tx.Now())
	})
	if err != nil {
		s.log.WithError(err).WithField("job_id", c.Job.ID).Warn("requeueing an undelivered job failed; it is requeued when its lease expires")
	}
}

func requeue(tx *store.Tx, job *store.Job, now time.Time) error {
	if err := apply(job, workflow.EventRequeue, now); err != nil {
		return err
	}
	for i, step := range job.Steps {
		job.Steps[i] = store.StepState{Name: step.Name, Status: workflow.StepNotStarted}
	}
	job.Epoch++
	job.PollID, job.Stock = "", false
	job.ClaimedAt, job.LastSeenAt = time.Time{}, time.Time{}
	job.AgentID, job.AgentHostname, job.AgentVersion = "", "", ""
	// During the claim, the pool might have been deleted, or the default pool changed.
	if err := reassign(tx, job); err != nil {
		return err
	}
	if err := tx.DeleteJobTokens(job.ID, store.JobToken); err != nil {
		return err
	}
	tx.Notify(pools.QueueTopic, pools.OrgPayload(job.OrgID))
	return tx.SaveJob(*job)
}

func reassign(tx *store.Tx, job *store.Job) error {
	if job.PoolPinned {
		_, err := tx.Pool(job.OrgID, job.PoolID)
		if !errors.Is(err, store.ErrNotFound) {
			return err
		}
		job.PoolPinned = false
	}
	org, err := tx.OrgQueue(job.OrgID)
	job.PoolID = org.DefaultPool
	return err
}

// Create queues a deployment. body is the body of the public request, and initiator is the trigger
// as the client names it.
func (s *Service) Create(ctx context.Context, p identity.Principal, st store.Stack, body []byte, initiator string) (store.Deployment, error) {
	op, inherit, err := readRequest(body)
	if err != nil {
		return store.Deployment{}, err
	}
	d := store.Deployment{
		ID: identity.NewID(), OrgID: st.OrgID, StackID: st.ID, Project: st.Project, Stack: st.Name, Operation: op,
		Initiator: termtext.OneLine(initiator, maxMessage), RequestedBy: p.User.ID, Requester: p.Name(), InheritSettings: inherit,
	}
	jobID := identity.NewID()
	err = s.db.Write(ctx, func(tx *store.Tx) error {
		set, err := s.configure(ctx, tx, st, body, inherit)
		if err != nil {
			return err
		}
		if identity.JobScope(st.ID, op, set.Option(), false)[st.ID]&identity.DeleteStack != 0 {
			if err := p.Check(st, identity.DeleteStack); err != nil {
				return err
			}
		}
		if op != workflow.OperationDestroy { // which frees space
			if err := s.opts.Quota.Admit(tx, st.OrgID); err != nil {
				return err
			}
		}
		d.CreatedAt = tx.Now()
		return enqueue(tx, &d, jobID, set)
	})
	return d, err
}

func readRequest(body []byte) (workflow.Operation, bool, error) {
	var r struct {
		Operation        *string `json:"operation"`
		InheritSettings  *bool   `json:"inheritSettings"`
		OperationContext *struct {
			Operation *string `json:"operation"`
		} `json:"operationContext"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		var te *json.UnmarshalTypeError
		if errors.As(err, &te) && te.Field != "" {
			return "", false, fault.Invalid("Bad Request: the member %q cannot be a JSON %s", te.Field, te.Value)
		}
		return "", false, fault.Invalid("Bad Request: the body is not a valid JSON object")
	}
	if c := r.OperationContext; c != nil && c.Operation != nil && *c.Operation != "" {
		return "", false, fault.Invalid("Bad Request: 'operation' must only be set at the top level of the request")
	}
	if r.Operation == nil || *r.Operation == "" {
		return "", false, fault.Invalid("Bad Request: Missing top level required field 'operation'")
	}
	op, err := workflow.ParseOperation(*r.Operation)
	if err != nil {
		return "", false, fault.Invalid("Bad Request: %s", termtext.OneLine(err.Error(), maxMessage))
	}
	return op, r.InheritSettings == nil || *r.InheritSettings, nil
}

func (s *Service) configure(ctx context.Context, tx *store.Tx, st store.Stack, body []byte, inherit bool) (*workflow.Settings, error) {
	var base *workflow.Settings
	if inherit {
		var err error
		if base, _, err = storedSettings(tx, st.ID); err != nil {
			return nil, err
		}
	}
	set, err := workflow.InheritSettings(base, body)
	if err == nil {
		err = set.Validate()
	}
	if err == nil {
		err = set.CompleteSource()
	}
	if err == nil {
		err = set.Deployable()
	}
	if err != nil {
		return nil, fault.Invalid("Bad Request: %s", err)
	}
	return set, s.seal(ctx, st.ID, set)
}

func enqueue(tx *store.Tx, d *store.Deployment, jobID string, set *workflow.Settings) error {
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
	queue.LastVersion++
	if err := tx.SaveStackQueue(queue); err != nil {
		return err
	}
	d.Version = queue.LastVersion
	doc, err := json.Marshal(set)
	if err != nil {
		return fmt.Errorf("encoding a deployment's configuration: %w", err)
	}
	d.Configuration = string(doc)
	job := store.Job{
		ID: jobID, DeploymentID: d.ID, OrgID: d.OrgID, StackID: d.StackID,
		PoolID: set.AgentPoolID, PoolPinned: pinned, Operation: d.Operation, Version: d.Version,
		SkipIntermediate: set.Option().SkipIntermediateDeployments,
		Status:           workflow.StatusNotStarted, Epoch: 1, QueuedAt: d.CreatedAt, ModifiedAt: d.CreatedAt,
	}
	if !pinned {
		job.PoolID = org.DefaultPool
	}
	for _, step := range set.Plan(d.Operation) {
		job.Steps = append(job.Steps, store.StepState{Name: step.Name, Status: workflow.StepNotStarted})
	}
	if err := tx.InsertDeployment(*d); err != nil {
		return err
	}
	if err := tx.InsertJob(job); err != nil {
		return err
	}
	if job.PoolID != "" {
		tx.Notify(pools.QueueTopic, job.PoolID)
	}
	return nil
}
