package states

import (
	"context"
	"iter"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/stacks/journal"
	"workflowagent/internal/server/store"
)

// numbers counts the entries of a journal, whose client numbers them from 1.
type numbers struct{ entries, last int64 }

// count counts entries while they are read.
func (n *numbers) count(entries iter.Seq2[journal.Entry, error]) iter.Seq2[journal.Entry, error] {
	return func(yield func(journal.Entry, error) bool) {
		for e, err := range entries {
			n.entries++
			n.last = max(n.last, e.SequenceID)
			if !yield(e, err) {
				return
			}
		}
	}
}

// reportGaps warns if the journal of a successful update lacks entries. The CLI ignores the loss of
// entries for unchanged resources. A replay then leaves these resources behind those that the
// journal has, possibly a parent behind its child, and the CLI rejects such a state.
func (s *Store) reportGaps(ctx context.Context, key string, n numbers) {
	missing := n.last - n.entries
	if missing <= 0 {
		return
	}
	var u store.Update
	var st store.Stack
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if u, err = tx.UpdateOfState(key); err == nil {
			st, err = tx.Stack(u.StackID)
		}
		return err
	})
	switch {
	case err != nil:
		s.log.WithError(err).WithField("state", key).Warn("looking up the update of a journal that lacks entries failed")
	case u.Status == "succeeded":
		s.log.WithFields(logrus.Fields{"stack": st.Ref(), "update": u.ID, "version": u.Version, "missing": missing}).Warn("the update succeeded, but the server did not receive all entries of its journal; " +
			"if pulumi reports a snapshot integrity error, run pulumi state repair")
	}
}
