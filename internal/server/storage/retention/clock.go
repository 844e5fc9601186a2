package retention

import "time"

const (
	// maxStep is the largest change of the clock between two sweeps that is ignored.
	maxStep = time.Hour
	// clockWait is the time in which an operator can correct a clock that was set ahead by mistake.
	clockWait = 24 * time.Hour
)

// clock compares the database's time with the time for which this server runs. By a wrong time, all
// data might look old.
type clock struct {
	up    func() time.Duration
	ahead time.Duration // uptime when the clock was last set ahead; 0 for never
	now   time.Time     // at the last check
	at    time.Duration // uptime at the last check
}

// upSince returns a function that returns the time since began, by the monotonic clock.
func upSince(began time.Time) func() time.Duration {
	return func() time.Duration { return time.Since(began) }
}

// check returns the time by which the clock was set since the last check, or 0, and the time for
// which now cannot be trusted yet. If the clock was set back, now can be trusted at once: data might
// only look too young.
func (c *clock) check(now time.Time) (step, wait time.Duration) {
	up := c.up()
	if !c.now.IsZero() {
		step = now.Sub(c.now) - (up - c.at)
	}
	c.now, c.at = now, up
	switch {
	case step > maxStep:
		c.ahead = up
		return step, clockWait
	case step < -maxStep:
		c.ahead = 0
	}
	if c.ahead == 0 {
		return 0, 0
	}
	return 0, max(0, clockWait-(up-c.ahead))
}
