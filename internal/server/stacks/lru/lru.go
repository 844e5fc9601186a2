// Package lru keeps values in memory, and drops those that were not used for the longest time.
package lru

import "sync"

// Cache keeps values by key, within bounds of their number and their total size. The value that was used
// last remains even if it alone is too large. A Cache may be used concurrently, but its values need locks
// of their own.
type Cache[V any] struct {
	maxValues, maxSize int

	mu     sync.Mutex
	values map[string]*value[V]
	size   int   // total size
	uses   int64 // number of calls of Get
}

type value[V any] struct {
	v    V
	size int
	used int64 // number of the last use
}

// New returns an empty cache.
func New[V any](maxValues, maxSize int) *Cache[V] {
	return &Cache[V]{maxValues: maxValues, maxSize: maxSize, values: map[string]*value[V]{}}
}

// Get returns the value of a key. If none is kept, it returns and keeps a new zero value of size 0.
func (c *Cache[V]) Get(key string) *V {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.values[key]
	if kept == nil {
		kept = &value[V]{}
		c.values[key] = kept
	}
	c.uses++
	kept.used = c.uses
	c.trim(kept)
	return &kept.v
}

// Resize records the size of a value from Get, unless the cache has dropped it.
func (c *Cache[V]) Resize(key string, v *V, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept := c.values[key]; kept != nil && &kept.v == v {
		c.size += size - kept.size
		kept.size = size
		c.trim(kept)
	}
}

// Drop drops the value of a key.
func (c *Cache[V]) Drop(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(key)
}

func (c *Cache[V]) drop(key string) {
	if kept := c.values[key]; kept != nil {
		c.size -= kept.size
		delete(c.values, key)
	}
}

// trim drops values, except keep, until the cache is within its bounds.
func (c *Cache[V]) trim(keep *value[V]) {
	for len(c.values) > 1 && (len(c.values) > c.maxValues || c.size > c.maxSize) {
		oldest := ""
		for key, other := range c.values {
			if other != keep && (oldest == "" || other.used < c.values[oldest].used) {
				oldest = key
			}
		}
		c.drop(oldest)
	}
}
