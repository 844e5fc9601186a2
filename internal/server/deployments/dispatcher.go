package deployments

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"workflowagent/internal/workflow"
)

const (
	// claimTimeout bounds one attempt to claim jobs for waiters.
	claimTimeout = 30 * time.Second
	// maxBatch is the maximum number of waiters that one transaction serves.
	maxBatch = 32
	// emptyFor is the time for which new polls rely on notifications after an attempt has found no
	// claimable job. After that time, a new poll starts another attempt.
	emptyFor = time.Second
)

// dispatcher assigns jobs to held polls without polling the database. When it is notified of
// claimable jobs, it claims them for the polls that have waited longest. At most one goroutine serves
// each line, and only while polls wait. A line has the polls of one pool that accept the same types of jobs: what is
// claimable for one of them is claimable for all.
type dispatcher struct {
	claim func(context.Context, []*Poll) []outcome

	mu     sync.Mutex
	lines  map[lineKey]*line
	closed bool
	wg     sync.WaitGroup
}

type lineKey struct {
	pool                     string
	deployments, evaluations bool
}

func (r *Poll) line() lineKey {
	return lineKey{r.Agent.PoolID, r.Accepts(workflow.TypeDeployment), r.Accepts(workflow.TypePolicyEvaluation)}
}

type line struct {
	orgID   string
	waiters []*waiter
	dirty   bool      // a job might be claimable
	running bool      // a goroutine serves the line
	empty   time.Time // time of the last attempt that found too few claimable jobs
}

// waiter is a held poll. It receives one outcome, unless it leaves before a claim for it begins.
type waiter struct {
	*Poll
	leaving bool
	got     chan outcome // capacity 1
}

// key returns what a poll and its repetitions have in common.
func (r *Poll) key() [2]string { return [2]string{r.Agent.AgentID, r.PollID} }

type outcome struct {
	claim *Claim // nil: no job
	err   error
}

func newDispatcher(claim func(context.Context, []*Poll) []outcome) *dispatcher {
	return &dispatcher{claim: claim, lines: map[lineKey]*line{}}
}

// close makes the dispatcher reject new polls, and waits for its goroutines. The caller must end
// the waiting polls.
func (d *dispatcher) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.wg.Wait()
}

// join adds a poll to its line. It starts an attempt to claim a job unless one has just found
// none.
func (d *dispatcher) join(r *Poll) *waiter {
	w := &waiter{Poll: r, got: make(chan outcome, 1)}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		w.got <- outcome{}
		return w
	}
	l := d.lines[r.line()]
	if l == nil {
		l = &line{orgID: r.Agent.OrgID}
		d.lines[r.line()] = l
	}
	l.waiters = append(l.waiters, w)
	if l.dirty || time.Since(l.empty) >= emptyFor {
		d.serve(r.line(), l)
	}
	return w
}

// leave removes a poll. If a claim for the poll is in progress, leave waits for the outcome, which
// can be a job.
func (d *dispatcher) leave(w *waiter) outcome {
	key := w.line()
	d.mu.Lock()
	if l := d.lines[key]; l != nil {
		for i, other := range l.waiters {
			if other == w {
				l.waiters = append(l.waiters[:i], l.waiters[i+1:]...)
				d.tidy(key, l)
				d.mu.Unlock()
				return outcome{}
			}
		}
	}
	w.leaving = true
	d.mu.Unlock()
	return <-w.got
}

func (d *dispatcher) note(payload string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	org, isOrg := strings.CutPrefix(payload, "org:")
	for key, l := range d.lines {
		if payload == "" || key.pool == payload || isOrg && l.orgID == org {
			d.serve(key, l)
		}
	}
}

// serve ensures that a goroutine serves the line. The caller must hold d.mu.
func (d *dispatcher) serve(key lineKey, l *line) {
	l.dirty = true
	if l.running || d.closed || len(l.waiters) == 0 {
		return
	}
	l.running = true
	d.wg.Go(func() { d.run(key, l) })
}

// tidy removes a line that has no polls. The caller must hold d.mu.
func (d *dispatcher) tidy(key lineKey, l *line) {
	if len(l.waiters) == 0 && !l.running {
		delete(d.lines, key)
	}
}

// run claims jobs for the waiters of a line until no job is claimable or no poll waits.
func (d *dispatcher) run(key lineKey, l *line) {
	for {
		d.mu.Lock()
		if len(l.waiters) == 0 || !l.dirty || d.closed {
			l.running = false
			d.tidy(key, l)
			d.mu.Unlock()
			return
		}
		l.dirty = false
		batch := slices.Clone(l.waiters[:min(len(l.waiters), maxBatch)])
		chosen := map[[2]string]bool{}
		for _, w := range batch {
			chosen[w.key()] = w.PollID != ""
		}
		l.waiters = slices.DeleteFunc(l.waiters[len(batch):], func(w *waiter) bool {
			if chosen[w.key()] {
				batch = append(batch, w) // it is the same poll
			}
			return chosen[w.key()]
		})
		d.mu.Unlock()

		polls := make([]*Poll, len(batch))
		for i, w := range batch {
			polls[i] = w.Poll
		}
		ctx, cancel := context.WithTimeout(context.Background(), claimTimeout)
		began := time.Now()
		out := d.claim(ctx, polls)
		cancel()

		d.mu.Lock()
		var unserved []*waiter
		busy := false
		for i, w := range batch {
			busy = busy || errors.Is(out[i].err, errBusy)
			switch nothing := errors.Is(out[i].err, errNothing); {
			case nothing && !w.leaving:
				l.empty = began
				unserved = append(unserved, w)
			case nothing:
				w.got <- outcome{}
			default:
				w.got <- out[i]
			}
		}
		if len(unserved) == 0 {
			l.dirty = true // another job might be claimable
		}
		l.waiters = append(unserved, l.waiters...)
		d.mu.Unlock()
		if busy {
			time.AfterFunc(busyPause, func() { d.note(key.pool) })
		}
	}
}
