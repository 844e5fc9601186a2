package signin

import (
	"sync"
	"time"
)

const (
	triesPerMinute = 10
	// knownAddresses bounds the memory of attempts.
	knownAddresses = 10000
)

// attempts counts failed sign-ins by address and minute.
type attempts struct {
	mu       sync.Mutex
	minute   time.Time
	failures map[string]int
}

// allow reports whether an address may try again.
func (a *attempts) allow(address string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.roll(now)
	return a.failures[address] < triesPerMinute && len(a.failures) < knownAddresses
}

// failed records a failed sign-in.
func (a *attempts) failed(address string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.roll(now)
	a.failures[address]++
}

func (a *attempts) roll(now time.Time) {
	if minute := now.Truncate(time.Minute); a.failures == nil || !minute.Equal(a.minute) {
		a.minute, a.failures = minute, map[string]int{}
	}
}
