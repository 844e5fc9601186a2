package states

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/journal"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// A state is stored whole if its chain of deltas from the last whole state would have more than
// maxDepth deltas, or more than 1/maxDeltas of the bytes of that whole state.
const (
	maxDepth  = 16
	maxDeltas = 2
)

const (
	foldSweep = time.Minute
	// foldGrace is the minimum age of the journals that the sweep folds. The server that finished
	// an update folds the update's journal within seconds.
	foldGrace  = 30 * time.Second
	sweepPiece = 100
)

// Finish marks the journal of an update as finished. [Store.Run] then folds it.
func (s *Store) Finish(updateID, key string) {
	s.journals.Drop(updateID)
	select {
	case s.finished <- key:
	default:
	}
}

// Run folds the journals of finished updates until ctx is canceled. Organizations take turns, so that
// the journals of one do not delay the others by more than one fold.
func (s *Store) Run(ctx context.Context) error {
	always := make(chan struct{})
	close(always)
	for {
		if err := s.findFinished(ctx, foldGrace); err != nil && ctx.Err() == nil {
			return err
		}
		sweep := time.NewTimer(retry.Spread(foldSweep))
		for sweeping := false; !sweeping; {
			var ready chan struct{} // nil is never ready
			if !s.waiting.empty() {
				ready = always
			}
			select {
			case <-ctx.Done():
				sweep.Stop()
				return nil
			case <-sweep.C:
				sweeping = true
			case key := <-s.finished:
				s.enqueue(ctx, key)
			case <-ready:
				s.foldOrLog(ctx, s.waiting.next())
			}
		}
	}
}

// FoldLeft folds the journals of updates that finished more than age ago.
func (s *Store) FoldLeft(ctx context.Context, age time.Duration) error {
	err := s.findFinished(ctx, age)
	for err == nil && !s.waiting.empty() {
		s.foldOrLog(ctx, s.waiting.next())
		err = ctx.Err()
	}
	return err
}

// enqueue adds a journal to the queue. After an error, the sweep finds the journal.
func (s *Store) enqueue(ctx context.Context, key string) {
	found, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.OwnedState, error) { return tx.JournalByKey(key) })
	if err != nil {
		return
	}
	for _, j := range found {
		s.waiting.add(j)
	}
}

// findFinished adds to the queue the journals of updates that finished more than age ago.
func (s *Store) findFinished(ctx context.Context, age time.Duration) error {
	s.failed.tidy()
	for after := ""; ; {
		found, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.OwnedState, error) {
			return tx.FinishedJournals(after, tx.Now().Add(-age), sweepPiece)
		})
		if err != nil {
			return fmt.Errorf("listing journals to fold: %w", err)
		}
		for _, j := range found {
			if after = j.Key; !s.failed.recent(j.Key) {
				s.waiting.add(j)
			}
		}
		if len(found) < sweepPiece {
			return nil
		}
	}
}

func (s *Store) foldOrLog(ctx context.Context, key string) {
	ctx, done := s.memory.Begin(ctx)
	defer done()
	err := s.Fold(ctx, key)
	if err != nil && ctx.Err() == nil && !passing(err) {
		s.log.WithError(err).WithField("state", key).Errorf("folding a journal failed; the server tries again in %v", foldRetry)
	}
}

// passing reports whether a fold failed for a reason that is not the journal's and that other parts of
// the server report: requests need all the memory, the disk is full, writes conflict, or the database
// does not answer. The next sweep folds the journal.
func passing(err error) bool {
	kind := fault.KindOf(err)
	return kind == fault.KindUnavailable || kind == fault.KindOutcomeUnknown || store.IsFull(err) || errors.Is(err, store.ErrBusy)
}

// Fold stores the journal of a finished update, and the journals on which it is based, as deltas or
// whole states. It does not change any state. Several servers can fold the same journal. Fold skips
// journals that it recently could not fold, and the journals that are based on them.
func (s *Store) Fold(ctx context.Context, key string) error {
	chain, err := s.chain(ctx, key)
	if err != nil {
		return err
	}
	for _, row := range slices.Backward(chain) {
		if row.Form != store.Journal {
			continue
		}
		if s.failed.recent(row.Key) {
			s.failed[key] = s.failed[row.Key]
			return nil
		}
		err := s.fold(ctx, row.Key)
		if err == nil || errors.Is(err, errFolded) {
			continue
		}
		if ctx.Err() == nil && !passing(err) {
			s.failed[row.Key] = time.Now()
			s.failed[key] = s.failed[row.Key]
		}
		return err
	}
	return nil
}

// fold folds a journal whose parent is not a journal. It returns errFolded if another server has
// folded the journal, or if an update still uses the journal or its parent.
func (s *Store) fold(ctx context.Context, key string) error {
	chain, err := s.chain(ctx, key)
	if err != nil {
		return err
	}
	row := chain[0]
	if row.Form != store.Journal || len(chain) > 1 && chain[1].Form == store.Journal {
		return errFolded
	}
	parent, err := s.build(ctx, chain[1:])
	if err != nil {
		return err
	}
	batches, err := s.batches(ctx, key, 0)
	if err != nil {
		return err
	}
	child, n, err := s.replay(ctx, parent, row)
	if err != nil {
		return err
	}
	put, err := s.store(ctx, row, chain[1:], parent, child)
	if err != nil {
		return err
	}
	err = s.db.Write(ctx, scope.Stack(row.OrgID, row.StackID), func(tx *store.Tx) error {
		if err := put.check(tx); err != nil {
			return err
		}
		if err := tx.FoldState(put.State, int64(len(batches))); err != nil {
			return err
		}
		return tx.CountState(key, child.Version, int64(len(child.Resources)))
	})
	if err != nil {
		s.Discard(ctx, put.Blob, err)
	}
	if errors.Is(err, store.ErrNotFound) {
		return errFolded
	}
	if err == nil {
		s.reportGaps(ctx, key, n)
	}
	return err
}

// store writes the blob of a journal's new form, and returns the row for that form.
func (s *Store) store(ctx context.Context, row store.State, ancestors []store.State, parent, child *journal.Deployment) (Put, error) {
	row.Form, row.FullSize, row.DeltaSize, row.Depth = store.Full, 0, 0, 0
	if len(ancestors) > 0 {
		if err := budget.Of(ctx).Take(ctx, int64(child.Size())); err != nil { // the longest delta
			return Put{}, err
		}
		var delta bytes.Buffer
		err := compress(&delta, func(w io.Writer) error { return journal.Diff(w, parent, child) })
		if err != nil {
			return Put{}, err
		}
		base := ancestors[0]
		if base.FullSize == 0 { // stored before sizes were recorded
			if base.FullSize, err = s.db.Blobs().Size(ctx, base.Blob); err != nil {
				return Put{}, err
			}
		}
		size := base.DeltaSize + int64(delta.Len())
		if base.Depth < maxDepth && size*maxDeltas <= base.FullSize {
			row.Form, row.FullSize, row.DeltaSize, row.Depth = store.Delta, base.FullSize, size, base.Depth+1
			return s.fill(ctx, row, io.NopCloser(&delta), hashOf(child))
		}
	}
	row.Parent = ""
	put, err := s.fill(ctx, row, pack(document(child)), nil)
	put.FullSize = put.Size
	return put, err
}

// fill writes the blob of a row, and returns the row with the blob's key, size and hash. A non-nil
// hash replaces the blob's hash.
func (s *Store) fill(ctx context.Context, row store.State, r io.ReadCloser, hash []byte) (Put, error) {
	put, err := s.write(ctx, newKey(row.StackID), r)
	row.Blob, row.Size, row.SHA256 = put.Blob, put.Size, put.SHA256
	if hash != nil {
		row.SHA256 = hash
	}
	put.State = row
	return put, err
}
