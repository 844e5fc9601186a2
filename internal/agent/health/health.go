// Package health serves the agent's health: /healthz reports whether it makes progress, /readyz
// whether it can accept jobs, /status its whole report, and /metrics its numbers for Prometheus.
//
// A [Tracker] records signs of progress and problems, [Metrics] count jobs and polls. [Reports] adds
// the tracker's part to the agent's report, from which [Handler] derives all answers and [Serve] runs
// the server. If the server cannot start, the agent only logs a warning, because jobs matter more.
package health

import (
	"maps"
	"slices"
	"sync"
	"time"

	"workflowagent/internal/agent/status"
)

// Tracker records the last sign of progress and current problems. It is safe for concurrent
// use.
type Tracker struct {
	threshold time.Duration

	mu       sync.Mutex
	last     time.Time
	problems map[string]string
}

// NewTracker returns a tracker of an agent that is healthy while its last sign of progress is
// not older than threshold. The start counts as the first one.
func NewTracker(threshold time.Duration) *Tracker {
	return &Tracker{threshold: threshold, last: time.Now(), problems: map[string]string{}}
}

// Activity records a sign of progress: an answered poll, a heartbeat, a step of a job.
func (t *Tracker) Activity() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = time.Now()
}

// SetProblem sets the named problem, such as an engine that is down; nil clears it. Problems do
// not make an agent unhealthy: a restart would not help.
func (t *Tracker) SetProblem(name string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.problems, name)
		return
	}
	t.problems[name] = err.Error()
}

// fill adds the progress and the problems, in the order of their names, to a report.
func (t *Tracker) fill(r *status.Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.LastActivity = t.last
	// Since uses the monotonic clock, so setting the clock cannot make an agent unhealthy.
	r.Healthy = time.Since(t.last) <= t.threshold
	for _, name := range slices.Sorted(maps.Keys(t.problems)) {
		r.Problems = append(r.Problems, t.problems[name])
	}
}
