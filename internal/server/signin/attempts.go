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
	// recordsPerMinute bounds the entries that failed attempts make in the audit log.
	recordsPerMinute = 60
)

// attempts counts failed sign-ins by source and minute.
type attempts struct {
	mu       sync.Mutex
	minute   time.Time
	failures map[string]int
	recorded int
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

// failed counts a failed sign-in. It reports whether the address may try again, and whether the
// failure belongs in the audit log.
func (a *attempts) failed(address string, now time.Time) (allowed, record bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.roll(now)
	from := a.bucket(address)
	if a.failures[from] >= triesPerMinute {
		return false, false
	}
	a.failures[from]++
	a.recorded++
	return true, a.recorded <= recordsPerMinute
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
		a.minute, a.failures, a.recorded = minute, map[string]int{}, 0
	}
}
