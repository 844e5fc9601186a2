package deployments

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// Claim is a claimed job.
type Claim struct {
	Type          workflow.Type
	Job           store.Job // without a deployment unless the type is deployment
	Token         string    // authenticates the callbacks of this job and epoch
	IdentityToken string    // the job's first identity token; "" if the server cannot issue one

	shared bool // several polls with the same id received the claim
}

var (
	errNothing = errors.New("no job can be claimed")
	// errBusy is errNothing for a moment: other writes hold the stacks of claimable jobs.
	errBusy = fmt.Errorf("%w while other writes hold the stacks of the queued jobs", errNothing)
)

const (
	// busyPause is the time after which a claim is attempted again after errBusy.
	busyPause = 20 * time.Millisecond
	// busyTries bounds the attempts for a poll that does not wait.
	busyTries = 10
	// spareJobs is the number of claimable jobs that a claim considers besides those that it needs, because
	// other writes can hold the stacks of some.
	spareJobs = 8
)

// claim returns one outcome per poll, all of the same pool: a job, errNothing or another error. A
// repeated poll receives the same job while its claim is current and the job has not started.
func (s *Service) claim(ctx context.Context, polls []*Poll) []outcome {
	var earlier map[[2]string]*Claim
	ready := false
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if earlier, err = s.earlierClaims(tx, polls); err != nil {
			return err
		}
		ready, err = s.ready(tx, polls)
		return err
	})
	out := slices.Repeat([]outcome{{err: errNothing}}, len(polls))
	if err == nil && ready {
		err = s.db.Write(ctx, scope.Claims(polls[0].Agent.OrgID), func(tx *store.Tx) (err error) {
			out, earlier, err = s.assign(tx, polls)
			return err
		})
	}
	if err != nil {
		return slices.Repeat([]outcome{{err: err}}, len(polls))
	}
	for i, r := range polls {
		if c, found := earlier[r.key()]; found {
			out[i] = s.repeat(ctx, r, c)
		}
		if c := out[i].claim; c != nil {
			s.log.WithFields(logrus.Fields{
				"job_id": c.Job.ID, "type": c.Type, "deployment_id": c.Job.DeploymentID, "pool": c.Job.PoolID,
				"agent": r.Agent.Hostname, "epoch": c.Job.Epoch,
			}).Info("job claimed")
		}
	}
	return out
}

// claimNow is claim for a poll that does not wait for its job.
func (s *Service) claimNow(ctx context.Context, r *Poll) (o outcome) {
	for range busyTries {
		o = s.claim(ctx, []*Poll{r})[0]
		if !errors.Is(o.err, errBusy) || retry.Sleep(ctx, busyPause) != nil {
			break
		}
	}
	return o
}

// earlierClaims returns the jobs in earlier responses to the same polls that are claimed or running, by
// the key of the poll.
func (s *Service) earlierClaims(tx *store.Tx, polls []*Poll) (map[[2]string]*Claim, error) {
	ids := map[string]bool{}
	for _, r := range polls {
		ids[r.PollID] = true
	}
	delete(ids, "")
	if len(ids) == 0 {
		return nil, nil
	}
	pool, sorted := polls[0].Agent.PoolID, slices.Sorted(maps.Keys(ids))
	earlier := map[[2]string]*Claim{}
	list, err := tx.JobsByPolls(pool, sorted)
	for _, job := range list {
		earlier[[2]string{job.AgentID, job.PollID}] = &Claim{Type: workflow.TypeDeployment, Job: job}
	}
	if err == nil && s.opts.Evaluations != nil {
		list, err = s.opts.Evaluations.ByPolls(tx, pool, sorted)
		for _, job := range list {
			earlier[[2]string{job.AgentID, job.PollID}] = &Claim{Type: workflow.TypePolicyEvaluation, Job: job}
		}
	}
	return earlier, err
}

// cap returns the limit of claimed and running jobs of an organization with its own quota, or 0.
func (s *Service) cap(quota int64) int64 {
	if quota > 0 {
		return quota
	}
	return s.opts.Cap
}

// roomForEvaluations returns the number of evaluations that may start under a limit. They leave one place to a deployment, for
// which a user may wait.
func roomForEvaluations(limit, active int64) int64 {
	if limit > 1 {
		limit--
	}
	return limit - active
}

// ready reports whether the pool of polls may start a job for one of them now.
func (s *Service) ready(tx *store.Tx, polls []*Poll) (bool, error) {
	agent := polls[0].Agent
	active, quota, err := tx.CountActiveJobs(agent.OrgID)
	if err != nil || active >= s.cap(quota) {
		return false, err
	}
	if anyAccepts(polls, workflow.TypeDeployment) {
		list, err := tx.NextJobs(agent.PoolID, 1)
		if err != nil || len(list) > 0 {
			return true, err
		}
	}
	if s.opts.Evaluations == nil || !anyAccepts(polls, workflow.TypePolicyEvaluation) || roomForEvaluations(s.cap(quota), active) <= 0 {
		return false, nil
	}
	return s.opts.Evaluations.Ready(tx, agent)
}

// assign claims jobs for polls, in a transaction that holds the claims of the organization. It returns
// one outcome per poll, and the earlier claims of polls, to which it assigns nothing.
//
// A proxy can send a poll twice, or keep it when its client has disconnected and repeats it. All of them
// get the same claim.
func (s *Service) assign(tx *store.Tx, polls []*Poll) (out []outcome, earlier map[[2]string]*Claim, err error) {
	now, err := tx.LeaseTime()
	if err != nil {
		return nil, nil, err
	}
	if earlier, err = s.earlierClaims(tx, polls); err != nil {
		return nil, nil, err
	}
	out = slices.Repeat([]outcome{{err: errNothing}}, len(polls))
	// A held poll's agent might have been drained since the poll began.
	drained, err := tx.Drains(polls[0].Agent.PoolID)
	if err != nil {
		return nil, nil, err
	}
	live := map[string]error{} // by token
	var free []int             // polls that may take a job
	first := map[[2]string]int{}
	twins := map[int]int{} // from other polls with the same id
	for i, r := range polls {
		if _, found := earlier[r.key()]; found {
			continue
		}
		// A held poll's token might have become invalid since the poll began.
		dead, known := live[r.TokenID]
		if !known {
			dead = identity.CheckLive(tx, r.TokenID, now)
			if dead != nil && fault.KindOf(dead) != fault.KindUnauthenticated {
				return nil, nil, dead
			}
			live[r.TokenID] = dead
		}
		switch n, repeated := first[r.key()]; {
		case dead != nil:
			out[i].err = dead
		case slices.ContainsFunc(drained, func(d store.DrainedAgent) bool { return d.AgentID == r.Agent.AgentID }):
		case repeated && r.PollID != "":
			twins[i] = n
		default:
			first[r.key()] = i
			free = append(free, i)
		}
	}
	active, quota, err := tx.CountActiveJobs(polls[0].Agent.OrgID)
	if err != nil {
		return nil, nil, err
	}
	room := int(max(0, min(int64(len(free)), s.cap(quota)-active)))
	claimed, err := s.assignDeployments(tx, polls, free, room, out, now)
	if err == nil && s.opts.Evaluations != nil {
		left := min(int64(room-claimed), roomForEvaluations(s.cap(quota), active+int64(claimed)))
		err = s.assignEvaluations(tx, polls, free, int(left), out, now)
	}
	if err != nil {
		return nil, nil, err
	}
	for i, n := range twins {
		if out[i].err = out[n].err; out[n].claim == nil {
			continue
		}
		out[n].claim.shared = true
		out[i].claim = &Claim{Type: out[n].claim.Type, Job: out[n].claim.Job, shared: true}
		if err := grant(tx, out[i].claim, now); err != nil {
			return nil, nil, err
		}
	}
	if slices.ContainsFunc(out, func(o outcome) bool { return o.claim != nil }) {
		err = tx.TouchPool(polls[0].Agent.PoolID, now)
	}
	return out, earlier, err
}

// assignDeployments claims up to room deployments for those of the free polls that accept them, and returns their number.
func (s *Service) assignDeployments(tx *store.Tx, polls []*Poll, free []int, room int, out []outcome, now time.Time) (int, error) {
	takers := accepting(polls, free, workflow.TypeDeployment)
	jobs, busy, err := s.next(tx, polls[0].Agent, min(room, len(takers)))
	if err != nil {
		return 0, err
	}
	for n, i := range takers {
		if n >= len(jobs) {
			if busy {
				out[i].err = errBusy
			}
			continue
		}
		c := &Claim{Type: workflow.TypeDeployment, Job: jobs[n]}
		if err := s.take(tx, &c.Job, polls[i], now); err != nil {
			return 0, err
		}
		if err := grant(tx, c, now); err != nil {
			return 0, err
		}
		out[i] = outcome{claim: c}
	}
	return len(jobs), nil
}

// next returns up to room jobs that an agent's pool may start now, and acquires their stacks. It never
// waits for a stack: busy reports that it has left out jobs because other writes hold or held their
// stacks.
func (s *Service) next(tx *store.Tx, agent pools.Sighting, room int) (jobs []store.Job, busy bool, err error) {
	if room <= 0 {
		return nil, false, nil
	}
	list, err := tx.NextJobs(agent.PoolID, room+spareJobs)
	if err != nil {
		return nil, false, err
	}
	var ids []string
	for _, job := range list {
		free, err := tx.TryLock(scope.Stack(agent.OrgID, job.StackID))
		if err != nil {
			return nil, false, err
		}
		if !free {
			busy = true
			continue
		}
		if ids = append(ids, job.ID); len(ids) == room {
			break
		}
	}
	// The jobs were listed before their stacks were acquired.
	jobs, err = tx.StillNext(agent.PoolID, ids)
	jobs = oneOfEachGroup(jobs)
	return jobs, busy || len(jobs) < len(ids), err
}

func (s *Service) take(tx *store.Tx, job *store.Job, r *Poll, now time.Time) error {
	if err := apply(job, workflow.EventClaim, now); err != nil {
		return err
	}
	job.ClaimedAt, job.LastSeenAt = now, now
	job.AgentID, job.AgentHostname, job.AgentVersion = r.Agent.AgentID, r.Agent.Hostname, r.Agent.Version
	job.AgentPlatform = r.Agent.Platform
	job.PollID, job.Stock = r.PollID, r.Stock
	changed(tx, *job)
	return tx.SaveJob(*job)
}

// grant creates the token of a claim.
func grant(tx *store.Tx, c *Claim, now time.Time) error {
	text, hash := identity.NewToken()
	c.Token = text
	job := c.Job
	return tx.InsertToken(store.Token{
		ID: identity.NewID(), Hash: hash, Kind: store.RunnerToken, OrgID: job.OrgID, PoolID: job.PoolID,
		JobID: job.ID, Epoch: job.Epoch, DeploymentID: job.DeploymentID, StackID: job.StackID, CreatedAt: now,
	})
}

// repeat returns the claim in an earlier response to the same poll once more. While its job runs, the
// client has received it, and the poll ends without a job.
func (s *Service) repeat(ctx context.Context, r *Poll, claimed *Claim) outcome {
	if claimed.Type == workflow.TypePolicyEvaluation {
		return s.repeatEvaluation(ctx, r, claimed.Job)
	}
	earlier := claimed.Job
	var o outcome
	err := s.db.Write(ctx, scope.Stack(earlier.OrgID, earlier.StackID), func(tx *store.Tx) error {
		now, err := tx.LeaseTime()
		if err != nil {
			return err
		}
		if err := identity.CheckLive(tx, r.TokenID, now); err != nil {
			return err
		}
		job, err := tx.Job(earlier.ID)
		if err != nil {
			return err
		}
		if job.AgentID != r.Agent.AgentID || job.PollID != r.PollID {
			o = outcome{err: errBusy} // requeued since: the poll may take any job
			return nil
		}
		if o = (outcome{}); job.Status != workflow.StatusAccepted {
			return nil
		}
		job.LastSeenAt = now
		if err := tx.SaveJob(job); err != nil {
			return err
		}
		o.claim = &Claim{Type: workflow.TypeDeployment, Job: job}
		return grant(tx, o.claim, now)
	})
	if err != nil {
		return outcome{err: err}
	}
	return o
}

// handBack requeues a job whose claim was not delivered, unless the agent has since polled or sent
// a request for the job.
func (s *Service) handBack(ctx context.Context, c *Claim) {
	if c.shared {
		return // the agent can have received it
	}
	if c.Type == workflow.TypePolicyEvaluation {
		s.handBackEvaluation(ctx, c)
		return
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
	tx.OnCommit(func() { s.writers.Forget(job.ID) })
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
