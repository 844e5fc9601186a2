package mask

import (
	"context"
	"fmt"
	"sync"

	"workflowagent/internal/redact"
	"workflowagent/internal/server/stacks/lru"
)

// Bounds of the cached secret sets.
const (
	maxSets  = 64
	maxBytes = 64 << 20 // total memory of all sets; see [redact.Set.Size]
)

// Sets caches the secret sets of recent deployments. All updates of a deployment share a set.
type Sets struct {
	sets     *lru.Cache[entry] // by the id of the deployment
	building sync.Mutex        // held while a set is built, which can need up to 100 MiB
}

// NewSets returns an empty cache.
func NewSets() *Sets { return &Sets{sets: lru.New[entry](maxSets, maxBytes)} }

// entry caches a deployment's set. The first caller computes the set while other callers wait.
type entry struct {
	mu    sync.Mutex
	set   *redact.Set
	grown int64
}

// Of returns a deployment's secret set. It calls find if the set is not cached, or has grown since: grown counts that.
func (m *Sets) Of(ctx context.Context, deploymentID string, grown int64, find func(context.Context, string) ([]redact.Secret, error)) (*redact.Set, error) {
	k := m.sets.Get(deploymentID)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.set != nil && k.grown >= grown {
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
	k.set, k.grown = set, grown
	m.sets.Resize(deploymentID, k, set.Size())
	return k.set, nil
}

func (m *Sets) build(ctx context.Context, secrets []redact.Secret) (*redact.Set, error) {
	m.building.Lock()
	defer m.building.Unlock()
	return redact.Build(ctx, secrets...)
}
