package stacks

import (
	"context"
	"sync"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/inventory"
	"workflowagent/internal/server/store"
)

// Bounds of the lists of resources that are kept in memory. Browsers read the rows of a large one piece by piece.
const (
	keptInventories    = 64
	keptInventoryBytes = 32 << 20
)

// kept is the resources of a state whose contents never change.
type kept struct {
	mu   sync.Mutex
	list inventory.List
	made bool
}

// Inventory returns the resources in the current state of a stack, which the caller must not change. It keeps those of
// states that no update changes any more.
func (s *Service) Inventory(ctx context.Context, p identity.Principal, st store.Stack) (inventory.List, error) {
	if err := p.Check(st, identity.StateRead); err != nil || st.StateBlob == "" {
		return inventory.List{}, err
	}
	if st.ActiveUpdate != "" {
		stored, _, err := s.current(ctx, st.ID)
		if err != nil {
			return inventory.List{}, err
		}
		return inventory.Of(ctx, stored, maxCompared)
	}
	e := s.inventories.Get(st.StateBlob)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.made {
		return e.list, nil
	}
	stored, now, err := s.current(ctx, st.ID)
	if err != nil {
		return inventory.List{}, err
	}
	list, err := inventory.Of(ctx, stored, maxCompared)
	if err == nil && now.ActiveUpdate == "" && now.StateBlob == st.StateBlob {
		e.list, e.made = list, true
		s.inventories.Resize(st.StateBlob, e, list.Size())
	}
	return list, err
}

// Resource returns a resource of [Service.Inventory] as a JSON object, or nil if it has gone since. It contains the
// ciphertexts of secrets; hide them before you show it.
func (s *Service) Resource(ctx context.Context, p identity.Principal, st store.Stack, r inventory.Resource) ([]byte, error) {
	if err := p.Check(st, identity.StateRead); err != nil {
		return nil, err
	}
	stored, _, err := s.current(ctx, st.ID)
	if err != nil {
		return nil, err
	}
	raw, err := inventory.Raw(ctx, stored, maxCompared, r)
	if err == nil {
		err = budget.Of(ctx).Take(ctx, decodedSize*int64(len(raw)))
	}
	return raw, err
}
