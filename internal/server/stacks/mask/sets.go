package mask

import (
	"context"
	"fmt"
	"sync"
	"time"

	"workflowagent/internal/redact"
)

// Bounds of the cached secret sets.
const (
	maxSets  = 64
	maxBytes = 64 << 20 // total memory of all sets; see [redact.Set.Size]
)

// Sets caches the secret sets of recent deployments. All updates of a deployment share a set.
type Sets struct {
	mu   sync.Mutex
	sets map[string]*entry // keys are deployment ids

	building sync.Mutex // held while a set is built, which can need up to 100 MiB
}

// entry caches a deployment's set. The first caller computes the set while other callers wait.
type entry struct {
	mu  sync.Mutex
	set *redact.Set
	// Sets.mu guards the following fields.
	used time.Time
	size int // memory of the set in bytes
}

func (m *Sets) entry(deploymentID string) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sets == nil {
		m.sets = map[string]*entry{}
	}
	k := m.sets[deploymentID]
	if k == nil {
		k = &entry{}
		m.sets[deploymentID] = k
	}
	k.used = time.Now()
	m.trim(k)
	return k
}

func (m *Sets) made(k *entry, size int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k.size = size
	m.trim(k)
}

// trim evicts the least recently used entries, except keep, until the cache is within its bounds.
func (m *Sets) trim(keep *entry) {
	for {
		size, oldest := 0, ""
		for id, k := range m.sets {
			size += k.size
			if k != keep && (oldest == "" || k.used.Before(m.sets[oldest].used)) {
				oldest = id
			}
		}
		if oldest == "" || len(m.sets) <= maxSets && size <= maxBytes {
			return
		}
		delete(m.sets, oldest)
	}
}

// Of returns a deployment's secret set. It calls find if the set is not cached.
func (m *Sets) Of(ctx context.Context, deploymentID string, find func(context.Context, string) ([]redact.Secret, error)) (*redact.Set, error) {
	k := m.entry(deploymentID)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.set != nil {
		return k.set, nil
	}
	secrets, err := find(ctx, deploymentID)
	if err != nil {
		return nil, fmt.Errorf("finding the secrets of a deployment: %w", err)
	}
	set, err := m.build(ctx, secrets)
	if err != nil {
		return nil, fmt.Errorf("masking the secrets of a deployment: %w", err)
	}
	k.set = set
	m.made(k, set.Size())
	return k.set, nil
}

func (m *Sets) build(ctx context.Context, secrets []redact.Secret) (*redact.Set, error) {
	m.building.Lock()
	defer m.building.Unlock()
	return redact.Build(ctx, secrets...)
}
