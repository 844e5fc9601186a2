package states

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/stacks/journal"
	"workflowagent/internal/server/store"
)

// checkMigrations returns an error if new entries of a journal contain a migration that cannot follow
// the stored ones. Migrations are rare, and only a replay knows the resources that they change.
func (s *Store) checkMigrations(ctx context.Context, u store.Update, added []journal.Entry) error {
	if !slices.ContainsFunc(added, func(e journal.Entry) bool { return e.Kind == journal.StateMigration }) {
		return nil
	}
	var chain []store.State
	var batches []store.JournalBatch
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		u, err := tx.Update(u.ID)
		if err != nil {
			return err
		}
		key := u.StateBlob
		if key == "" {
			st, err := tx.Stack(u.StackID)
			if err != nil || st.StateBlob == "" {
				return err
			}
			chain, err = tx.StateChain(st.StateBlob)
			return err
		}
		if batches, err = tx.Batches(key, 0); err != nil {
			return err
		}
		if chain, err = tx.StateChain(key); err == nil {
			chain = chain[1:]
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("reading the state that a journal migrates: %w", err)
	}
	share := budget.Of(ctx)
	before := share.Held()
	defer func() { share.Give(share.Held() - before) }()
	base, err := s.build(ctx, chain)
	if err == nil {
		err = journal.CheckMigrations(base, s.entries(ctx, batches), added, journal.Options{Hold: hold(ctx)})
	}
	if errors.Is(err, errFolded) {
		return errBehind
	}
	return err
}
