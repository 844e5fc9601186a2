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
	By store.User // zero if not requested by a user
}

// historyChunk bounds the updates in memory while a history is read.
const historyChunk = 100

// History calls each for the started updates of a stack, newest first: either previews or all
// others. It skips offset updates and stops after limit; 0 means no limit. No transaction is open
// during the calls, so each may be slow.
func (s *Service) History(ctx context.Context, st store.Stack, previews bool, limit, offset int, each func(Entry) error) error {
	var after *store.Update
	for given := 0; limit == 0 || given < limit; {
		n := historyChunk
		if limit > 0 {
			n = min(n, limit-given)
		}
		var chunk []Entry
		err := s.db.Read(ctx, func(tx *store.Tx) error {
			updates, err := tx.UpdatesOfStack(st.ID, previews, after, n, offset)
			if err != nil {
				return err
			}
			chunk, err = entries(tx, updates)
			return err
		})
		if err != nil {
			return fmt.Errorf("reading the history of %s: %w", st.Ref(), err)
		}
		for _, e := range chunk {
			if err := each(e); err != nil {
				return err
			}
		}
		if len(chunk) < n {
			return nil
		}
		given += n
		after = &chunk[n-1].Update
	}
	return nil
}

// CountHistory returns the number of updates that [Service.History] lists without a limit.
func (s *Service) CountHistory(ctx context.Context, st store.Stack, previews bool) (int64, error) {
	var total int64
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		total, err = tx.CountUpdates(st.ID, previews)
		return err
	})
	return total, err
}

// Version returns the update that made a version of a stack.
func (s *Service) Version(ctx context.Context, st store.Stack, version int64) (Entry, error) {
	var out []Entry
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		u, err := tx.UpdateByVersion(st.ID, version)
		if err != nil {
			return err
		}
		out, err = entries(tx, []store.Update{u})
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return Entry{}, fault.NotFound("Not Found: stack '%s' has no version %d", st.Ref(), version)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("reading version %d of %s: %w", version, st.Ref(), err)
	}
	return out[0], nil
}

// Entries adds the requesters to updates.
func (s *Service) Entries(ctx context.Context, updates []store.Update) ([]Entry, error) {
	var out []Entry
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		out, err = entries(tx, updates)
		return err
	})
	return out, err
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

// CurrentOperation returns the update that holds a stack, if any.
func (s *Service) CurrentOperation(ctx context.Context, st store.Stack) (Entry, bool, error) {
	if st.ActiveUpdate == "" {
		return Entry{}, false, nil
	}
	var out []Entry
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		u, err := tx.Update(st.ActiveUpdate)
		if err != nil {
			return err
		}
		if Status(u.Status) != Running {
			out = nil
			return nil
		}
		out, err = entries(tx, []store.Update{u})
		return err
	})
	if err != nil || len(out) == 0 {
		return Entry{}, false, err
	}
	return out[0], true, nil
}
