package stacks

import (
	"context"
	"fmt"
	"sync"
	"time"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/store"
)

// ChangesTopic is the channel of notifications about new events of an update. The payload is the
// update's id.
const ChangesTopic = "changes"

// Bounds of the reducers that are kept in memory.
const (
	keptReducers     = 32
	keptReducerBytes = 64 << 20
)

// reducers are the folded events of updates that were read lately. The least recently used are
// dropped, and are rebuilt from the stored events when they are needed again.
type reducers struct {
	mu   sync.Mutex
	list map[string]*reduced
}

type reduced struct {
	mu   sync.Mutex
	fold changes.Reducer
	next int64 // sequence number of the first event that has not been folded
	tree changes.Tree
	made bool
	over bool // no events follow
	// size and used are guarded by the mutex of reducers.
	size int64
	used time.Time
}

func (r *reducers) of(id string) *reduced {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.list[id]
	if !ok {
		if r.list == nil {
			r.list = map[string]*reduced{}
		}
		e = &reduced{}
		r.list[id] = e
	}
	e.used = time.Now()
	return e
}

func (r *reducers) folded(id string, size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.list[id]; ok {
		e.size = size
	}
	for {
		total, oldest := int64(0), ""
		for key, e := range r.list {
			total += e.size
			if key != id && (oldest == "" || e.used.Before(r.list[oldest].used)) {
				oldest = key
			}
		}
		if oldest == "" || len(r.list) <= keptReducers && total <= keptReducerBytes {
			return
		}
		delete(r.list, oldest)
	}
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
	if u.EventsExpired {
		return changes.Tree{}, nil
	}
	e := s.reduced.of(u.ID)
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
		s.reduced.folded(u.ID, 2*e.fold.Size())
	}
	return e.tree, nil
}
