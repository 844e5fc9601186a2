// Package attempts counts failed attempts, so that what fails too often can be treated differently for
// the rest of the minute. Strangers can cause failures, also behind the same proxy as other clients: a
// counter must never decide whether a request that proves its origin is served.
package attempts

import (
	"net/netip"
	"sync"
	"time"
)

// maxKeys bounds the memory of a counter.
const maxKeys = 10000

// Counter counts the failures of a minute by keys, such as networks. Its methods may be called
// concurrently.
type Counter struct {
	limit int

	mu     sync.Mutex
	minute time.Time
	counts map[string]int
}

// New returns a counter that allows a key a number of failures per minute.
func New(limit int) *Counter { return &Counter{limit: limit} }

// Allowed reports whether a key has failures left.
func (c *Counter) Allowed(key string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[c.bucket(key, now)] < c.limit
}

// Fail counts n failures of a key. It returns whether they were allowed. What is not allowed does not
// count.
func (c *Counter) Fail(key string, n int, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key = c.bucket(key, now)
	if c.counts[key] >= c.limit {
		return false
	}
	c.counts[key] += n
	return true
}

// bucket returns the key under which failures of a key count in the current minute. When the memory is
// full, all other keys share one.
func (c *Counter) bucket(key string, now time.Time) string {
	if minute := now.Truncate(time.Minute); c.counts == nil || !minute.Equal(c.minute) {
		c.minute, c.counts = minute, map[string]int{}
	}
	if _, known := c.counts[key]; !known && len(c.counts) >= maxKeys {
		return ""
	}
	return key
}

// Source returns the network of an address, because a subscriber has a whole network of IPv6
// addresses. It returns "" for what is no address.
func Source(address string) string {
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
