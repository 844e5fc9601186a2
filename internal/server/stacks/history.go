package stacks

import (
	"context"
	"errors"
	"fmt"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// Entry is an update together with who asked for it.
type Entry struct {
	store.Update
	By store.User // zero when it was not a user
}

// History returns the updates of a stack that were started, newest first, and
// how many there are in all: previews only, or all others. A limit of 0
// returns all.
func (s *Service) History(ctx context.Context, st store.Stack, previews bool, limit, offset int) ([]Entry, int64, error) {
	var out []Entry
	var total int64
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		updates, err := tx.UpdatesOfStack(st.ID, previews, limit, offset)
		if err != nil {
			return err
		}
		if total, err = tx.CountUpdates(st.ID, previews); err != nil {
			return err
		}
		out, err = entries(tx, updates)
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("reading the history of %s: %w", st.Ref(), err)
	}
	return out, total, nil
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

// Entries adds who asked for them to updates.
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

// CurrentOperation is the update that holds a stack.
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
