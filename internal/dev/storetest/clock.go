package storetest

import (
	"sync"
	"time"
)

// Clock is a fake machine clock that a test controls. The zero value shows a day in 2084.
type Clock struct {
	mu         sync.Mutex
	wall, boot time.Duration
	start      string
}

// Now returns the current date and time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Unix(0, 0).UTC().Add(1e6*time.Hour + c.wall)
}

// Boot returns the boot ID and the time since the boot.
func (c *Clock) Boot() (string, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return "start " + c.start, c.boot
}

// Pass advances the clock by d.
func (c *Clock) Pass(d time.Duration) { c.shift(d, d) }

func (c *Clock) shift(wall, boot time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += wall
	c.boot += boot
}

// Set changes the date and time by d, but not the time since the boot.
func (c *Clock) Set(d time.Duration) { c.shift(d, 0) }

// Reboot sets a new boot ID and restarts the time since the boot.
func (c *Clock) Reboot() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start += "'"
	c.boot = 0
}

// Restore resumes the machine from a snapshot that is d old. The boot ID stays the same, and the
// time since boot decreases by d; the date and time do not change.
func (c *Clock) Restore(d time.Duration) { c.shift(0, -d) }
