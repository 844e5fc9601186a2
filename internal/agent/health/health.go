// Package health serves the agent's health over HTTP: /healthz reports whether the agent makes
// progress, /readyz whether it can accept jobs, /status its complete status report, and /metrics
// its metrics for Prometheus.
//
// A [Tracker] records signs of progress and problems, and [Metrics] counts jobs and polls.
// [Reports] adds the tracker's data to the agent's status report. [Handler] derives all responses
// from this report, and [Serve] runs the server. If the server cannot start, the agent only logs a
// warning, because running jobs is more important.
package health

import (
	"maps"
	"slices"
	"sync"
	"time"

	"workflowagent/internal/agent/status"
)

// Tracker records the last sign of progress and the current problems. It is safe for concurrent
// use.
type Tracker struct {
	threshold time.Duration

	mu       sync.Mutex
	last     time.Time
	problems map[string]string
}

// NewTracker returns a tracker. An agent is healthy while its last sign of progress is not older
// than threshold. The call of NewTracker counts as the first sign.
func NewTracker(threshold time.Duration) *Tracker {
	return &Tracker{threshold: threshold, last: time.Now(), problems: map[string]string{}}
}

// Activity records a sign of progress, such as a server response.
func (t *Tracker) Activity() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = time.Now()
}

// SetProblem sets the named problem, such as an unavailable engine. A nil error clears it. Problems
// do not make an agent unhealthy, because a restart would not fix them.
func (t *Tracker) SetProblem(name string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.problems, name)
		return
	}
	t.problems[name] = err.Error()
}

// fill adds the progress and the problems to a report. It sorts the problems by name.
func (t *Tracker) fill(r *status.Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.LastActivity = t.last
	// time.Since uses the monotonic clock, so a clock change cannot make an agent unhealthy.
	r.Healthy = time.Since(t.last) <= t.threshold
	for _, name := range slices.Sorted(maps.Keys(t.problems)) {
		r.Problems = append(r.Problems, t.problems[name])
	}
}
