// Package health shows the world how the agent is: /healthz says whether it makes progress,
// /readyz whether it could take work, /status what it does, and /metrics has numbers for
// Prometheus.
//
// A [Tracker] is told of every sign of progress, [Metrics] of jobs and polls; [Handler] serves
// them and the agent's reports, and [Serve] runs the server. Nothing here can stop the agent: a
// health server that cannot start is a warning, because the jobs matter more.
package health

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Tracker remembers the last sign of progress and what stands in its way. All methods may be
// called from any goroutine.
type Tracker struct {
	threshold time.Duration

	mu       sync.Mutex
	last     time.Time
	problems map[string]string
}

// NewTracker returns a tracker of an agent that is healthy while its last sign of progress is not
// older than threshold. The start counts as the first one.
func NewTracker(threshold time.Duration) *Tracker {
	return &Tracker{threshold: threshold, last: time.Now(), problems: map[string]string{}}
}

// Touch records a sign of progress: an answered poll, a heartbeat, a step of a job.
func (t *Tracker) Touch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = time.Now()
}

// SetProblem tells of something the agent waits for or works around, such as an engine that is
// down, as one sentence for an operator. It replaces the last one of the same name; an empty text
// says that the problem is over. Problems are shown, they do not make an agent unhealthy: a
// restart would not help.
func (t *Tracker) SetProblem(name, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text == "" {
		delete(t.problems, name)
		return
	}
	t.problems[name] = text
}

// LastActivity returns when the last sign of progress was.
func (t *Tracker) LastActivity() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// Healthy reports whether the last sign of progress is recent enough.
func (t *Tracker) Healthy() bool {
	// Since looks at the monotonic clock, so that a clock that is set cannot make an agent ill.
	return time.Since(t.LastActivity()) <= t.threshold
}

// Problems returns the sentences given to SetProblem, in the order of their names.
func (t *Tracker) Problems() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(t.problems)) {
		texts = append(texts, t.problems[name])
	}
	return texts
}
