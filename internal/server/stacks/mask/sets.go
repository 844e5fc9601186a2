package mask

import (
	"context"
	"fmt"
	"sync"
	"time"

	"workflowagent/internal/redact"
)

// Bounds of the sets of secrets that are kept. A set takes at least 64 KiB, and
// some two hundred times the bytes of secrets that can be written in many ways.
const (
	maxSets  = 64
	maxBytes = 2 << 20 // of secrets
)

// Sets are the sets of secrets of the deployments that recorded events last. A
// deployment may begin any number of updates, and they share one set.
type Sets struct {
	mu   sync.Mutex
	sets map[string]*entry // by deployment
}

// entry is filled by the first caller that needs it, while the others wait.
type entry struct {
	mu  sync.Mutex
	set *redact.Set
	// guarded by the mutex of all
	used time.Time
	size int // bytes of secrets
}

// entry returns the entry of a deployment.
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

// made notes how large a set is.
func (m *Sets) made(k *entry, size int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k.size = size
	m.trim(k)
}

// trim forgets what was not used for the longest time, except for keep, until the
// rest is within its bounds.
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

// Of returns the set of a deployment's secrets, which find finds if no set of it is
// kept.
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
	k.set = redact.New(secrets, redact.Options{})
	size := 0
	for _, secret := range secrets {
		size += len(secret.Value)
	}
	m.made(k, size)
	return k.set, nil
}
