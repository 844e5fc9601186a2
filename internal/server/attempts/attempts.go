// Package attempts counts failed attempts by their source, so that a source that fails too often can
// be refused for the rest of the minute.
package attempts

import (
	"net/netip"
	"sync"
	"time"
)

// maxSources bounds the memory of a counter.
const maxSources = 10000

// Counter counts the failures of a minute. Its methods may be called concurrently.
type Counter struct {
	limit int

	mu     sync.Mutex
	minute time.Time
	counts map[string]int // by source
}

// New returns a counter that allows a source a number of failures per minute.
func New(limit int) *Counter { return &Counter{limit: limit} }

// Allowed reports whether the source of an address may try again.
func (c *Counter) Allowed(address string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[c.bucket(address, now)] < c.limit
}

// Fail counts an attempt as n failures of the source of an address. It returns whether the attempt
// was allowed. What is not allowed does not count.
func (c *Counter) Fail(address string, n int, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := c.bucket(address, now)
	if c.counts[from] >= c.limit {
		return false
	}
	c.counts[from] += n
	return true
}

// bucket returns the source under which an address counts in the current minute. When the memory is
// full, all other sources share one.
func (c *Counter) bucket(address string, now time.Time) string {
	if minute := now.Truncate(time.Minute); c.counts == nil || !minute.Equal(c.minute) {
		c.minute, c.counts = minute, map[string]int{}
	}
	from := Source(address)
	if _, known := c.counts[from]; !known && len(c.counts) >= maxSources {
		return ""
	}
	return from
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
