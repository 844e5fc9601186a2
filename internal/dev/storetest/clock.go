package storetest

import (
	"sync"
	"time"
)

// Clock is a machine's clock that a test sets. The zero value is a day in 2084.
type Clock struct {
	mu         sync.Mutex
	wall, boot time.Duration
	start      string
}

// Now returns the time of day.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Unix(0, 0).UTC().Add(1e6*time.Hour + c.wall)
}

// Boot returns the boot's id and the time since then.
func (c *Clock) Boot() (string, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return "start " + c.start, c.boot
}

// Pass advances the clock by d.
func (c *Clock) Pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += d
	c.boot += d
}

// Set changes the time of day by d.
func (c *Clock) Set(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += d
}

// Reboot reboots the machine.
func (c *Clock) Reboot() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start += "'"
	c.boot = 0
}

// Restore resumes the machine from a snapshot made d ago, with the same id, while the time of day
// continues.
func (c *Clock) Restore(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boot -= d
}
