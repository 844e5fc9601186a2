package agent

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/status"
	"workflowagent/internal/delivery"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

const shownOutcomes = 20

// board holds the agent's state for display. The agent makes no decisions based on it.
type board struct {
	mu      sync.Mutex
	started time.Time
	jobs    map[string]*shownJob // by journal name
	ended   []status.Outcome     // newest first

	answered  time.Time // time of the last successful poll; zero before the first
	pollError string    // error of the last poll
	pollSince time.Time // the time at which polls last changed between success and failure; zero before the first poll
	noJobs    bool      // the server hands out no jobs, because an administrator has drained the agent
}

type shownJob struct {
	status.Job
	courier *delivery.Courier // nil until the job's goroutine creates it
}

func newBoard() *board {
	return &board{started: time.Now(), jobs: map[string]*shownJob{}}
}

// drained records whether the server hands out no jobs. It reports whether that has changed.
func (b *board) drained(drained bool) (changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	changed, b.noJobs = b.noJobs != drained, drained
	return changed
}

func (b *board) polled(err error) {
	text, now := "", time.Now()
	if err != nil {
		text = err.Error()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pollSince.IsZero() || (text == "") != (b.pollError == "") {
		b.pollSince = now
	}
	if !errors.Is(err, protocol.ErrCircuitOpen) || b.pollError == "" {
		b.pollError = text // after a poll that was not sent, keep the previous error
	}
	if err == nil {
		b.answered = now
	}
}

func (b *board) add(j *job, phase status.Phase) {
	claim := j.entry.Claim
	b.mu.Lock()
	defer b.mu.Unlock()
	b.jobs[j.name] = &shownJob{Job: status.Job{
		JobID: claim.JobID, DeploymentID: claim.DeploymentID, Pool: claim.PoolID, Epoch: claim.Epoch,
		Stack: j.entry.Stack, Operation: string(j.entry.Operation),
		Phase: phase, PhaseSince: time.Now(), ClaimedAt: j.entry.ClaimedAt,
		Reattached: phase == status.Reattaching,
	}}
}

func (b *board) change(name string, f func(*shownJob)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if shown := b.jobs[name]; shown != nil {
		f(shown)
	}
}

func (b *board) remove(j *job, how status.Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.jobs, j.name)
	how.JobID, how.DeploymentID, how.Pool = j.entry.Claim.JobID, j.entry.Claim.DeploymentID, j.entry.Claim.PoolID
	how.Stack, how.Operation = j.entry.Stack, string(j.entry.Operation)
	how.ClaimedAt, how.EndedAt = j.entry.ClaimedAt, time.Now()
	b.ended = slices.Insert(b.ended, 0, how)
	if len(b.ended) > shownOutcomes {
		b.ended = b.ended[:shownOutcomes]
	}
}

// JobFields returns a job's log fields, or nil if the job is unknown. It is for packages that have
// only the job's ID.
func (a *Agent) JobFields(jobID string) logrus.Fields {
	a.board.mu.Lock()
	defer a.board.mu.Unlock()
	for _, shown := range a.board.jobs {
		if shown.JobID == jobID {
			return jobFields(shown.JobID, shown.DeploymentID, shown.Stack, shown.Pool)
		}
	}
	return nil
}

func (j *job) phase(p status.Phase) {
	j.agent.board.change(j.name, func(s *shownJob) {
		if s.Phase != p {
			s.Phase, s.PhaseSince = p, time.Now()
		}
		s.Stack, s.Operation = j.entry.Stack, string(j.entry.Operation)
		if p == status.Running && s.StartedAt == nil && !s.Reattached {
			s.StartedAt = &s.PhaseSince
		}
	})
}

// Status returns the agent's part of the status report. The caller adds the health, the problems,
// the disk usage and the configuration.
func (a *Agent) Status() status.Report {
	busy := a.busy()
	stopping := a.stopping.Err() != nil
	r := status.Report{
		Time: time.Now(),
		Agent: status.Agent{
			Version: a.opts.Version, Instance: filepath.Base(a.opts.Identity.Dir), ID: a.opts.Identity.ID,
			SessionID: a.session, Hostname: a.opts.Identity.Hostname, PID: os.Getpid(),
		},
		Server:   status.Server{URL: a.opts.ServiceURL, BreakerOpen: a.opts.Client.BreakerOpen()},
		Engine:   a.engineStatus(),
		Token:    a.tokenStatus(),
		Slots:    status.Slots{Total: a.opts.MaxConcurrentJobs, Busy: busy, Free: max(a.opts.MaxConcurrentJobs-busy, 0)},
		Problems: []string{}, Config: []status.Setting{}, Jobs: []status.Job{},
		Stopping: stopping,
		Draining: a.draining.Err() != nil && !stopping,
	}
	if err := a.disk.state(); err != nil {
		r.Storage.Error = err.Error()
	}
	if a.opts.Keeper != nil {
		if u, ok := a.opts.Keeper.Usage(); ok {
			r.Workspaces = &status.Workspaces{Count: u.Count, Bytes: u.Bytes}
		}
	}
	a.board.fill(&r)
	r.UptimeSeconds = int64(r.Time.Sub(r.StartedAt) / time.Second)
	return r
}

func (b *board) fill(r *status.Report) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.StartedAt = b.started
	r.Ended = append([]status.Outcome{}, b.ended...)
	r.Server.Error = b.pollError
	if b.noJobs {
		r.Problems = append(r.Problems, "An administrator has drained this agent on the server: it gets no jobs until the administrator resumes it.")
	}
	r.Server.Connected = !b.answered.IsZero() && b.pollError == "" && !r.Server.BreakerOpen
	r.Server.LastPoll, r.Server.Since = known(b.answered), known(b.pollSince)
	for _, shown := range b.jobs {
		j := shown.Job
		if shown.courier != nil {
			j.Log.Written, j.Log.Pending = shown.courier.Progress()
		}
		r.Storage.PendingLogBytes += j.Log.Pending
		r.Jobs = append(r.Jobs, j)
	}
	slices.SortFunc(r.Jobs, func(x, y status.Job) int {
		return cmp.Or(x.ClaimedAt.Compare(y.ClaimedAt), cmp.Compare(x.JobID, y.JobID))
	})
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// expiring is a [TokenSource] whose tokens expire.
type expiring interface {
	// Expiry returns the time at which the last exchanged token expires, or the zero time before
	// the first exchange. good reports whether that token may still be valid.
	Expiry() (at time.Time, good bool)
}

func (a *Agent) tokenStatus() status.Token {
	source, ok := a.opts.Tokens.(expiring)
	if !ok {
		return status.Token{Kind: status.TokenStatic}
	}
	at, good := source.Expiry()
	token := status.Token{Kind: status.TokenOIDC, ExpiresAt: known(at)}
	switch {
	case good:
	case at.IsZero():
		token.Error = "no token has been exchanged yet"
	case time.Now().Before(at):
		token.Error = "the server rejected the last token before it expired"
	default:
		token.Error = "the last token has expired"
	}
	return token
}

func (j *job) took() time.Duration { return max(time.Since(j.entry.ClaimedAt), 0) }

func (j *job) ended(how status.Outcome) {
	j.agent.board.remove(j, how)
	j.agent.opts.Monitor.JobEnded(how.Status, workflow.Reason(how.Reason), j.took())
}
