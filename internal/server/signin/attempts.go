package signin

import (
	"net/netip"
	"sync"
	"time"
)

const (
	triesPerMinute = 10
	// knownSources bounds the memory of attempts.
	knownSources = 10000
)

// attempts counts failed sign-ins by source and minute.
type attempts struct {
	mu       sync.Mutex
	minute   time.Time
	failures map[string]int
}

// source returns the name under which the failures of an address count: its network, because a
// subscriber has a whole network of IPv6 addresses.
func source(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return ""
	}
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		return ip.String()
	}
	network, _ := ip.Prefix(64) // of an IPv6 address
	return network.String()
}

// allow reports whether an address may try again.
func (a *attempts) allow(address string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.roll(now)
	return a.failures[a.bucket(address)] < triesPerMinute
}

// failed records a failed sign-in.
func (a *attempts) failed(address string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.roll(now)
	a.failures[a.bucket(address)]++
}

// bucket returns the source of an address. When the memory is full, all other sources share one.
func (a *attempts) bucket(address string) string {
	from := source(address)
	if _, known := a.failures[from]; !known && len(a.failures) >= knownSources {
		return ""
	}
	return from
}

func (a *attempts) roll(now time.Time) {
	if minute := now.Truncate(time.Minute); a.failures == nil || !minute.Equal(a.minute) {
		a.minute, a.failures = minute, map[string]int{}
	}
}
