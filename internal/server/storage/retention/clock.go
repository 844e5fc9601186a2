package retention

import (
	"time"

	"workflowagent/internal/server/store"
)

const (
	// maxStep is the largest change of the clock between two sweeps that is ignored.
	maxStep = time.Hour
	// maxAway is the longest time without a sweep before the first one of a process that is trusted: the clock might
	// have been set ahead in between, as by a machine that boots with a wrong one.
	maxAway = 24 * time.Hour
	// clockWait is the time in which an operator can correct a clock that was set ahead by mistake.
	clockWait = 24 * time.Hour
)

// clock compares the database's time with the time for which this server runs, and with what servers have stored. By a
// wrong time, all data might look old.
type clock struct {
	up   func() time.Duration
	held time.Time     // until then, no data is removed
	now  time.Time     // at the last check
	at   time.Duration // uptime at the last check
}

// upSince returns a function that returns the time since began, by the monotonic clock.
func upSince(began time.Time) func() time.Duration {
	return func() time.Duration { return time.Since(began) }
}

// check returns what is to be stored at now, given what was stored, and the time by which the clock was set ahead
// since the last check, or 0. If the clock was set back, the wait is not longer than before: data might only look too
// young.
func (c *clock) check(now time.Time, stored store.SweepClock) (next store.SweepClock, step time.Duration) {
	up, most := c.up(), maxStep
	switch {
	case !c.now.IsZero():
		step = now.Sub(c.now) - (up - c.at)
	case !stored.SweptAt.IsZero():
		step, most = now.Sub(stored.SweptAt), maxAway
	}
	held := stored.HeldUntil
	if c.held.After(held) {
		held = c.held
	}
	latest := now.Add(clockWait)
	if step <= most {
		step = 0
	}
	if step > 0 || held.After(latest) {
		held = latest
	}
	c.now, c.at, c.held = now, up, held
	return store.SweepClock{SweptAt: now, HeldUntil: held}, step
}
