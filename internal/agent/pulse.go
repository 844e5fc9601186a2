package agent

import (
	"sync"
	"time"
)

// pulse shows that the poll loop goes on: the loop says before each wait how long
// it may take at most, and is alive until that time is over.
type pulse struct {
	mu  sync.Mutex
	due time.Time // zero: nothing is expected any more
}

// pulseGrace is what a wait may take longer than was said: a busy machine, the
// few quick things between two waits.
const pulseGrace = time.Minute

// expect says that the next sign comes within d.
func (p *pulse) expect(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due = time.Now().Add(d + pulseGrace)
}

// rest says that no further sign comes, and that this is as it should be.
func (p *pulse) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due = time.Time{}
}

// Alive reports whether the agent's loop makes progress, for a watchdog: an agent
// that waits for a server that is down, or for its last jobs, is alive.
func (a *Agent) Alive() bool {
	a.pulse.mu.Lock()
	defer a.pulse.mu.Unlock()
	return a.pulse.due.IsZero() || time.Now().Before(a.pulse.due)
}
