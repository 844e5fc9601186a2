// Package recent keeps values in memory for a short time after they were read.
package recent

import (
	"sync"
	"time"
)

// Map keeps values by key, each for Age. Its size is bounded by the number of keys that are used within
// twice that time. It may be used concurrently.
type Map[V any] struct {
	Age time.Duration

	mu     sync.Mutex
	values map[string]entry[V]
	swept  time.Time
}

type entry[V any] struct {
	value V
	until time.Time
}

// Get returns the value of a key, unless it is too old.
func (m *Map[V]) Get(key string) (v V, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.get(key)
}

func (m *Map[V]) get(key string) (v V, ok bool) {
	if e, found := m.values[key]; found && time.Now().Before(e.until) {
		return e.value, true
	}
	return v, false
}

// Put keeps a value that was read at a time.
func (m *Map[V]) Put(key string, v V, read time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(key, v, read)
}

func (m *Map[V]) put(key string, v V, read time.Time) {
	if time.Since(m.swept) > m.Age {
		m.swept = time.Now()
		for other, e := range m.values {
			if m.swept.After(e.until) {
				delete(m.values, other)
			}
		}
	}
	if m.values == nil {
		m.values = map[string]entry[V]{}
	}
	m.values[key] = entry[V]{v, read.Add(m.Age)}
}

// GetOr returns the value of a key, or keeps and returns a new one.
func (m *Map[V]) GetOr(key string, create func() V) V {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.get(key)
	if !ok {
		v = create()
		m.put(key, v, time.Now())
	}
	return v
}

// Forget removes the value of a key.
func (m *Map[V]) Forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, key)
}
