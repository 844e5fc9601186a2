package deployments

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/issuer"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// Claim is a claimed job.
type Claim struct {
	Job           store.Job
	Token         string // authenticates the callbacks of this job and epoch
	IdentityToken string // the job's first identity token; "" if the server cannot issue one

	shared bool // several polls with the same id received the claim

	draft *issuer.Draft // of IdentityToken
	token store.Token   // the row of Token
	org   store.Organization
}

var errNothing = errors.New("no job can be claimed")

// claim assigns the pool's next jobs in one transaction. It returns one outcome per poll, all of
// the same pool: a job, errNothing or another error. A repeated poll receives the same job while its
// claim is current and the job has not started.
func (s *Service) claim(ctx context.Context, polls []*Poll) []outcome {
	tokens, hashes := make([]string, len(polls)), make([][]byte, len(polls))
	for i := range polls {
		tokens[i], hashes[i] = identity.NewToken()
	}
	// The time of a pool's last claim is only displayed, so a precision of one second is sufficient.
	touch := sync.OnceValue(func() bool { return s.claims.stale(polls[0].Agent.PoolID, time.Now()) })
	var out []outcome
	err := s.db.Write(ctx, scope.Todo, func(tx *store.Tx) error {
		now, err := tx.LeaseTime()
		if err != nil {
			return err
		}
		if out, err = s.assign(tx, polls, now); err != nil {
			return err
		}
		if err := s.drafts(tx, out, now); err != nil {
			return err
		}
		claimed := false
		taken := map[string]store.Job{}
		for i, o := range out {
			if o.claim == nil {
				continue
			}
			if job, ok := taken[o.claim.Job.ID]; ok {
				o.claim.Job = job
			}
			if o.claim.Job.Status == workflow.StatusNotStarted {
				if err := s.take(tx, &o.claim.Job, polls[i], now); err != nil {
					return err
				}
				taken[o.claim.Job.ID] = o.claim.Job
			}
			job := o.claim.Job
			o.claim.Token, o.claim.token = tokens[i], store.Token{
				ID: identity.NewID(), Hash: hashes[i], Kind: store.RunnerToken, OrgID: job.OrgID, PoolID: job.PoolID,
				JobID: job.ID, Epoch: job.Epoch, DeploymentID: job.DeploymentID, StackID: job.StackID, CreatedAt: now,
			}
			if err := tx.InsertToken(o.claim.token); err != nil {
				return err
			}
			claimed = true
		}
		if !claimed || !touch() {
			return nil
		}
		if err := tx.TouchPool(polls[0].Agent.PoolID, now); !errors.Is(err, store.ErrNotFound) {
			return err
		}
		return nil
	})
	if err != nil {
		return slices.Repeat([]outcome{{err: err}}, len(polls))
	}
	for i, o := range out {
		if o.claim == nil {
			continue
		}
		if s.opts.Runners != nil && o.claim.org.ID != "" {
			s.opts.Runners.RememberRunner(o.claim.token, o.claim.org)
		}
		s.log.WithFields(logrus.Fields{
			"job_id": o.claim.Job.ID, "deployment_id": o.claim.Job.DeploymentID, "pool": o.claim.Job.PoolID,
			"agent": polls[i].Agent.Hostname, "epoch": o.claim.Job.Epoch,
		}).Info("job claimed")
	}
	return out
}

// assign returns an outcome for each poll. The caller takes the jobs that are still queued, and sets
// the claims' tokens.
//
// A proxy can send a poll twice, or keep it when its client has disconnected and repeats it. All of them
// get the same claim. While its job runs, the client has received it, and the others end without a job.
func (s *Service) assign(tx *store.Tx, polls []*Poll, now time.Time) ([]outcome, error) {
	out := slices.Repeat([]outcome{{err: errNothing}}, len(polls))
	earlier, err := reclaim(tx, polls, now)
	if err != nil {
		return nil, err
	}
	live := map[string]error{} // by token
	var free []int             // polls that may take a job
	first := map[[2]string]int{}
	twins := map[int]int{} // from other polls with the same id
	for i, r := range polls {
		// A held poll's token might have become invalid since the poll began.
		dead, known := live[r.TokenID]
		if !known {
			dead = identity.CheckLive(tx, r.TokenID, now)
			if dead != nil && fault.KindOf(dead) != fault.KindUnauthenticated {
				return nil, dead
			}
			live[r.TokenID] = dead
		}
		switch job := earlier[r.PollID]; {
		case dead != nil:
			out[i].err = dead
		case job.ID != "" && job.AgentID == r.Agent.AgentID:
			if out[i].err = nil; job.Status == workflow.StatusAccepted {
				out[i].claim = &Claim{Job: job}
			}
		default:
			if n, ok := first[r.key()]; ok && r.PollID != "" {
				twins[i] = n
				continue
			}
			first[r.key()] = i
			free = append(free, i)
		}
	}
	jobs, err := s.next(tx, polls[0], len(free))
	if err != nil {
		return nil, err
	}
	for n, job := range jobs {
		out[free[n]] = outcome{claim: &Claim{Job: job}}
	}
	for i, n := range twins {
		if c := out[n].claim; c != nil {
			c.shared = true
			out[i] = outcome{claim: &Claim{Job: c.Job, shared: true}}
		}
	}
	return out, nil
}

// reclaim returns the jobs in earlier responses to the same polls, by the id of the poll, and
// records a sign of life of the agents of those that have not started.
func reclaim(tx *store.Tx, polls []*Poll, now time.Time) (map[string]store.Job, error) {
	agents := map[string]string{} // by poll
	for _, r := range polls {
		if r.PollID != "" {
			agents[r.PollID] = r.Agent.AgentID
		}
	}
	if len(agents) == 0 {
		return nil, nil
	}
	list, err := tx.JobsByPolls(polls[0].Agent.PoolID, slices.Sorted(maps.Keys(agents)))
	if err != nil {
		return nil, err
	}
	earlier := map[string]store.Job{}
	for _, job := range list {
		if agents[job.PollID] != job.AgentID {
			continue
		}
		if job.Status == workflow.StatusAccepted {
			job.LastSeenAt = now
			if err := tx.SaveJob(job); err != nil {
				return nil, err
			}
		}
		earlier[job.PollID] = job
	}
	return earlier, nil
}

// next returns up to limit jobs that the poll's pool may start now.
func (s *Service) next(tx *store.Tx, r *Poll, limit int) ([]store.Job, error) {
	if limit == 0 {
		return nil, nil
	}
	room, err := s.room(tx, r.Agent.OrgID, int64(limit))
	if err != nil || room <= 0 {
		return nil, err
	}
	return tx.NextJobs(r.Agent.PoolID, int(room))
}

func (s *Service) take(tx *store.Tx, job *store.Job, r *Poll, now time.Time) error {
	if err := apply(job, workflow.EventClaim, now); err != nil {
		return err
	}
	job.ClaimedAt, job.LastSeenAt = now, now
	job.AgentID, job.AgentHostname, job.AgentVersion = r.Agent.AgentID, r.Agent.Hostname, r.Agent.Version
	job.AgentPlatform = r.Agent.Platform
	job.PollID, job.Stock = r.PollID, r.Stock
	if err := tx.SaveJob(*job); err != nil {
		return err
	}
	changed(tx, *job)
	s.active.claimed(r.Agent.OrgID)
	return nil
}

// room returns how many jobs an organization may start now, up to limit. Only claims add active
// jobs. A server that does not share its database therefore knows an upper bound: the last count
// plus its own claims. It counts again only when limit more jobs would exceed that bound.
func (s *Service) room(tx *store.Tx, orgID string, limit int64) (int64, error) {
	if !s.db.Shared() && s.active.admits(orgID, limit, s.opts.Cap) {
		return limit, nil
	}
	n, err := tx.CountActiveJobs(orgID)
	if err != nil {
		return 0, err
	}
	s.active.counted(orgID, n)
	return min(limit, s.opts.Cap-n), nil
}

type atMost struct {
	mu sync.Mutex
	n  map[string]int64
}

// admits reports whether an organization's upper bound is known and permits more jobs within limit.
func (a *atMost) admits(orgID string, more, limit int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, known := a.n[orgID]
	return known && n+more <= limit
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
	if c.shared {
		return // the agent can have received it
	}
	err := s.db.Write(ctx, scope.Stack(c.Job.OrgID, c.Job.StackID), func(tx *store.Tx) error {
		job, err := tx.Job(c.Job.ID)
		if err != nil {
			return err
		}
		untouched := job.Status == workflow.StatusAccepted && job.Epoch == c.Job.Epoch &&
			job.LastSeenAt.UnixMicro() == c.Job.LastSeenAt.UnixMicro()
		if !untouched {
			return nil
		}
		return s.requeue(tx, &job, tx.Now())
	})
	if err != nil {
		s.log.WithError(err).WithField("job_id", c.Job.ID).Warn("requeueing an undelivered job failed; it is requeued when its lease expires")
	}
}

func (s *Service) requeue(tx *store.Tx, job *store.Job, now time.Time) error {
	if err := apply(job, workflow.EventRequeue, now); err != nil {
		return err
	}
	for i, step := range job.Steps {
		job.Steps[i] = store.StepState{Name: step.Name, Status: workflow.StepNotStarted}
	}
	job.Epoch++
	job.PollID, job.Stock = "", false
	job.ClaimedAt, job.LastSeenAt = time.Time{}, time.Time{}
	job.AgentID, job.AgentHostname, job.AgentVersion, job.AgentPlatform, job.Holder = "", "", "", "", ""
	// During the claim, the pool might have been deleted, or the default pool changed.
	if err := reassign(tx, job); err != nil {
		return err
	}
	if err := tx.DeleteJobTokens(job.ID, store.JobToken); err != nil {
		return err
	}
	tx.OnCommit(func() { s.writers.forget(job.ID) })
	tx.Notify(pools.QueueTopic, pools.OrgPayload(job.OrgID))
	changed(tx, *job)
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
