package stacks

import (
	"context"
	"fmt"
	"sync"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/store"
)

// ChangesTopic is the channel of notifications about new events of an update. The payload is the
// update's id.
const ChangesTopic = "changes"

// Bounds of the folded events that are kept in memory.
const (
	keptReducers     = 32
	keptReducerBytes = 64 << 20
)

// reduced are the folded events of an update. They are rebuilt from the stored events when they are needed
// again.
type reduced struct {
	mu   sync.Mutex
	fold changes.Reducer
	next int64 // sequence number of the first event that has not been folded
	tree changes.Tree
	made bool
	over bool // no events follow
}

// Changes returns what is known about the resources of a stack's update. The rows of the result are
// shared and must not be changed.
func (s *Service) Changes(ctx context.Context, p identity.Principal, st store.Stack, u store.Update) (changes.Tree, error) {
	if err := p.Check(st, identity.StateRead); err != nil {
		return changes.Tree{}, err
	}
	if u.StackID != st.ID {
		return changes.Tree{}, fmt.Errorf("update %s is not one of stack %s", u.ID, st.Ref())
	}
	return s.ChangesOf(ctx, u)
}

// ChangesOf is [Service.Changes] for the server itself, which may see all stacks.
func (s *Service) ChangesOf(ctx context.Context, u store.Update) (changes.Tree, error) {
	if u.EventsExpired {
		return changes.Tree{}, nil
	}
	e := s.reduced.Get(u.ID)
	e.mu.Lock()
	defer e.mu.Unlock()
	for !e.over {
		span, err := s.eventSpan(ctx, u.ID, e.next)
		if err != nil {
			return changes.Tree{}, fmt.Errorf("reading the changes of an update: %w", err)
		}
		for _, body := range span.events {
			e.fold.Add(body)
		}
		budget.Of(ctx).Give(span.bytes)
		e.over, e.made = span.end, e.made && len(span.events) == 0
		if len(span.events) == 0 {
			break
		}
		e.next = span.next
	}
	if !e.made {
		e.tree, e.made = e.fold.Tree(), true
		s.reduced.Resize(u.ID, e, int(2*e.fold.Size()))
	}
	return e.tree, nil
}
