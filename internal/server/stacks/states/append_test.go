package states

import (
	"errors"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/stacks/journal"
	"workflowagent/internal/server/store"
)

// TestAppendBehindOtherServers lets other servers store a batch during each of the first attempts
// to append. The last attempt can succeed; after it, the client must retry.
func TestAppendBehindOtherServers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := New(db, storetest.Log(), nil)
		key := stackOf(t, db, s)
		entries, err := journal.ReadEntries([]byte(`[{"version":1,"kind":2,"sequenceID":2,"operationID":2}]`))
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			behind, tries int
			want          error
			batches       int64
		}{
			{appendTries, appendTries, errBehind, 1},
			{appendTries - 1, appendTries, nil, 2},
		} {
			tries := 0
			err := s.Append(t.Context(), store.Update{ID: "u1", OrgID: "o1", StackID: "s1"}, entries, func(tx *store.Tx) (store.Update, error) {
				if tries++; tries <= tt.behind {
					// The failed attempt rolls this batch back.
					rival := store.JournalBatch{StateKey: key, Number: 2, Body: []byte{}, CreatedAt: tx.Now()}
					if err := tx.InsertBatch(rival); err != nil {
						return store.Update{}, err
					}
				}
				return permitted(tx)
			})
			if !errors.Is(err, tt.want) || tries != tt.tries {
				t.Errorf("behind %d times: %v after %d attempts, want %v after %d", tt.behind, err, tries, tt.want, tt.tries)
			}
			last, err := store.Read(t.Context(), db, func(tx *store.Tx) (int64, error) { return tx.LastBatch(key) })
			if last != tt.batches || err != nil {
				t.Errorf("behind %d times: %d batches are stored, %v, want %d", tt.behind, last, err, tt.batches)
			}
		}
	})
}

// permitted permits the update of [stackOf].
func permitted(tx *store.Tx) (store.Update, error) { return tx.Update("u1") }
