package deployments

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

type claimant struct {
	TokenID string // of the pool token that authenticated the poll
	OrgID   string
	Agent   pools.Sighting
	PollID  string
	Stock   bool // knows only the stock calls
}

// Claim is a claimed job.
type Claim struct {
	Job   store.Job
	Token string // for the callbacks of this job and epoch
}

var errNothing = errors.New("no job can be claimed")

// claim assigns the pool's next job in one transaction, or returns errNothing. A repeated poll gets
// the same job while its claim is current and the job has not started.
func (s *Service) claim(ctx context.Context, c claimant) (*Claim, error) {
	token, hash := identity.NewToken()
	var job store.Job
	err := s.db.Write(ctx, func(tx *store.Tx) error {
		now, err := tx.LeaseTime()
		if err != nil {
			return err
		}
		// A poll is held for long: its token may have ended since.
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

// reclaim returns the job that an earlier response to the same poll carried.
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
	// Clients see the time of a pool's last claim; a precision of one second is enough.
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

// full reports whether an organization has reached its cap of active jobs. Only claims add to them,
// so between counts this server's claims are an upper bound unless servers share the database.
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

// below reports whether the upper bound is known and less than limit.
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

// stale reports whether a second has passed since it last returned true for key.
func (r *recent) stale(key string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.last[key]) < time.Second {
		return false
	}
	r.last[key] = now
	return true
}

// handBack requeues an undelivered claim, unless the job was polled or heard from since.
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
		// The lease returns it later.
		s.log.WithError(err).WithField("job_id", c.Job.ID).Warn("could not give an undelivered job back to the queue")
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
	// The pool may have been deleted or the default changed during the claim.
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
