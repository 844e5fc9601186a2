package stacks

import (
	"context"
	"fmt"
	"sync"
	"time"

	"workflowagent/internal/redact"
	"workflowagent/internal/server/store"
)

// Bounds of the sets of secrets that are kept. A set takes at least 64 KiB, and
// some two hundred times the bytes of secrets that can be written in many ways.
const (
	maxMaskers     = 64
	maxMaskerBytes = 2 << 20 // of secrets
)

// maskers are the sets of secrets of the deployments that recorded events last. A
// deployment may begin any number of updates, and they share one set.
type maskers struct {
	mu   sync.Mutex
	sets map[string]*masker // by deployment
}

// masker is made by the first that needs it; the others wait for it.
type masker struct {
	mu  sync.Mutex
	set *redact.Set
	// guarded by the mutex of all
	used time.Time
	size int // bytes of secrets
}

// of returns the place of a deployment's set.
func (m *maskers) of(deploymentID string) *masker {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sets == nil {
		m.sets = map[string]*masker{}
	}
	k := m.sets[deploymentID]
	if k == nil {
		k = &masker{}
		m.sets[deploymentID] = k
	}
	k.used = time.Now()
	m.trim(k)
	return k
}

// made notes how large a set is.
func (m *maskers) made(k *masker, size int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k.size = size
	m.trim(k)
}

// trim forgets what was not used for the longest time, except for keep, until the
// rest is within its bounds.
func (m *maskers) trim(keep *masker) {
	for {
		size, oldest := 0, ""
		for id, k := range m.sets {
			size += k.size
			if k != keep && (oldest == "" || k.used.Before(m.sets[oldest].used)) {
				oldest = id
			}
		}
		if oldest == "" || len(m.sets) <= maxMaskers && size <= maxMaskerBytes {
			return
		}
		delete(m.sets, oldest)
	}
}

// masker returns what masks the known secrets in the events of an update, nil
// when there are none.
func (s *Service) masker(ctx context.Context, u store.Update) (*redact.Set, error) {
	if u.DeploymentID == "" || s.hooks.KnownSecrets == nil {
		return nil, nil //nolint:nilnil // nothing to mask is an answer
	}
	k := s.maskers.of(u.DeploymentID)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.set != nil {
		return k.set, nil
	}
	secrets, err := s.hooks.KnownSecrets(ctx, u.DeploymentID)
	if err != nil {
		return nil, fmt.Errorf("finding the secrets of a deployment: %w", err)
	}
	k.set = redact.New(secrets, redact.Options{})
	size := 0
	for _, secret := range secrets {
		size += len(secret.Value)
	}
	s.maskers.made(k, size)
	return k.set, nil
}
