package stacks

import (
	"context"
	"errors"
	"fmt"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// Entry is an update and its requester.
type Entry struct {
	store.Update
	By store.User // zero if no user requested the update
}

// historyChunk is the number of updates that History holds in memory at a time.
const historyChunk = 100

// History calls each for the selected updates of a stack. f.Limit is 0 for no limit, and f.StackID
// and f.After are ignored. No transaction is open during the calls, so each can block.
func (s *Service) History(ctx context.Context, st store.Stack, f store.UpdateFilter, each func(Entry) error) error {
	limit := f.Limit
	f.StackID, f.After = st.ID, nil
	for given := 0; limit == 0 || given < limit; {
		f.Limit = historyChunk
		if limit > 0 {
			f.Limit = min(historyChunk, limit-given)
		}
		chunk, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]Entry, error) {
			updates, err := tx.UpdatesOfStack(f)
			if err != nil {
				return nil, err
			}
			return entries(tx, updates)
		})
		if err != nil {
			return fmt.Errorf("reading the history of %s: %w", st.Ref(), err)
		}
		for _, e := range chunk {
			if err := each(e); err != nil {
				return err
			}
		}
		if len(chunk) < f.Limit {
			return nil
		}
		given += len(chunk)
		f.After = &chunk[len(chunk)-1].Update
	}
	return nil
}

// CountHistory returns the number of updates that [Service.History] lists without a limit.
func (s *Service) CountHistory(ctx context.Context, st store.Stack, f store.UpdateFilter) (int64, error) {
	f.StackID = st.ID
	return store.Read(ctx, s.db, func(tx *store.Tx) (int64, error) { return tx.CountUpdates(f) })
}

// Version returns the update that created a version of a stack.
func (s *Service) Version(ctx context.Context, st store.Stack, version int64) (Entry, error) {
	e, err := s.entryOf(ctx, st, version)
	if errors.Is(err, store.ErrNotFound) {
		return e, fault.NotFound("stack '%s' has no version %d", st.Ref(), version)
	}
	return e, fault.While(err, "reading version %d of %s", version, st.Ref())
}

func (s *Service) entryOf(ctx context.Context, st store.Stack, version int64) (Entry, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) (e Entry, err error) {
		u, err := tx.UpdateByVersion(st.ID, version)
		if err != nil {
			return e, err
		}
		list, err := entries(tx, []store.Update{u})
		if err != nil {
			return e, err
		}
		return list[0], nil
	})
}

// Entries returns updates together with their requesters.
func (s *Service) Entries(ctx context.Context, updates []store.Update) ([]Entry, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) ([]Entry, error) { return entries(tx, updates) })
}

func entries(tx *store.Tx, updates []store.Update) ([]Entry, error) {
	users := map[string]store.User{}
	out := make([]Entry, 0, len(updates))
	for _, u := range updates {
		by, known := users[u.RequestedBy]
		if !known && u.RequestedBy != "" {
			var err error
			if by, err = tx.User(u.RequestedBy); err != nil && !errors.Is(err, store.ErrNotFound) {
				return nil, err
			}
			users[u.RequestedBy] = by
		}
		out = append(out, Entry{Update: u, By: by})
	}
	return out, nil
}

// NewestOperation returns the stack's newest update that is not a preview, and reports whether that
// update holds the stack. The entry of a stack without such an update is empty.
func (s *Service) NewestOperation(ctx context.Context, st store.Stack) (newest Entry, holds bool, err error) {
	newest, err = s.entryOf(ctx, st, st.Version)
	err = fault.While(store.IgnoreMissing(err), "reading the newest update of %s", st.Ref())
	return newest, Status(newest.Status) == Running, err
}
