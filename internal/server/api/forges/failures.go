package forges

import (
	"net/netip"
	"sync"
	"time"
)

// knownSources bounds the memory of failures.
const knownSources = 10000

// failures counts deliveries that could not be verified, by source and minute. Only failures count,
// so that a busy forge is never slowed down.
type failures struct {
	mu     sync.Mutex
	minute time.Time
	count  map[string]int
}

// allow reports whether a delivery from an address is verified.
func (f *failures) allow(address string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count[f.bucket(address, now)] < maxFailures
}

// add records a delivery that could not be verified, as a number of failures.
func (f *failures) add(address string, n int, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count[f.bucket(address, now)] += n
}

// bucket returns the name under which the failures of an address count: its network, because a
// subscriber has a whole network of IPv6 addresses. When the memory is full, all other sources share
// one.
func (f *failures) bucket(address string, now time.Time) string {
	if minute := now.Truncate(time.Minute); f.count == nil || !minute.Equal(f.minute) {
		f.minute, f.count = minute, map[string]int{}
	}
	name := address
	if ip, err := netip.ParseAddr(address); err == nil {
		bits := 32
		if ip = ip.Unmap().WithZone(""); ip.Is6() {
			bits = 64
		}
		network, _ := ip.Prefix(bits) // the number of bits fits the address
		name = network.String()
	}
	if _, known := f.count[name]; !known && len(f.count) >= knownSources {
		return ""
	}
	return name
}
