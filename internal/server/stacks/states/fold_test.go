package states

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/journal"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// stackOf adds a stack with a finished update, whose journal has one entry.
func stackOf(t *testing.T, db *store.DB, s *Store) (key string) {
	t.Helper()
	st := store.Stack{ID: "s1", OrgID: "o1", Project: "proj", Name: "dev", CreatedAt: time.Now()}
	u := store.Update{ID: "u1", StackID: "s1", Kind: "update", Status: "running", Version: 1, Program: "{}", StartedAt: time.Now()}
	err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		if err := tx.InsertOrganization(store.Organization{ID: "o1", Name: "acme", DisplayName: "acme"}); err != nil {
			return err
		}
		if err := tx.InsertStack(st); err != nil {
			return err
		}
		return tx.InsertUpdate(u)
	})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := journal.ReadEntries([]byte(`[{"version":1,"kind":1,"sequenceID":1,"operationID":1,"state":{"urn":"urn:pulumi:dev::proj::a:b:C::r","type":"a:b:C"}}]`))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Append(t.Context(), store.Update{ID: "u1", OrgID: "o1", StackID: "s1"}, entries, permitted); err != nil {
		t.Fatal(err)
	}
	err = db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		u, err := tx.Update("u1")
		if err != nil {
			return err
		}
		key = u.StateBlob
		u.Status = "succeeded"
		return tx.FinishUpdate(u)
	})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestFoldAfterACrash leaves a blob to which no row refers, as a crash does, and then folds twice.
// The state must not change.
func TestFoldAfterACrash(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := New(db, storetest.Log(), nil)
		key := stackOf(t, db, s)
		want := exportOf(t, s, key)
		sweep := func(want int) {
			t.Helper()
			if n, err := s.Sweep(t.Context(), -time.Hour); n != want || err != nil {
				t.Errorf("%d blobs were removed, %v, want %d", n, err, want)
			}
		}

		chain, err := s.chain(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := s.build(t.Context(), chain)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.store(t.Context(), chain[0], nil, nil, doc); err != nil { // the server crashes
			t.Fatal(err)
		}
		if got := exportOf(t, s, key); got != want {
			t.Errorf("after the crash, the state is %s, want %s", got, want)
		}
		for range 2 {
			if err := s.Fold(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			if got := exportOf(t, s, key); got != want {
				t.Errorf("after a fold, the state is %s, want %s", got, want)
			}
		}
		sweep(1)
		sweep(0)
		if got := exportOf(t, s, key); got != want {
			t.Errorf("after the sweep, the state is %s, want %s", got, want)
		}
	})
}

// TestSweepReachesEveryJournal stores more unfoldable journals than one query returns, and then a
// foldable one. The sweep must fold the latter.
func TestSweepReachesEveryJournal(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := New(db, storetest.Log(), nil)
		key := stackOf(t, db, s)
		err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			for i := range sweepPiece {
				row := store.State{Key: fmt.Sprintf("a%d", i), StackID: "s1", Form: store.Journal, CreatedAt: time.Unix(1, 0)}
				if err := tx.InsertState(row); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.FoldLeft(t.Context(), -time.Hour); err != nil {
			t.Fatal(err)
		}
		row, err := store.Read(t.Context(), db, func(tx *store.Tx) (store.State, error) { return tx.State(key) })
		if err != nil || row.Form == store.Journal {
			t.Errorf("the journal has the form %q, %v; want that it is folded", row.Form, err)
		}
	})
}

func TestJournalsAreBounded(t *testing.T) {
	p := progress{references: journal.NewProgress(0), entries: map[int64]hash{}}
	for i := range int64(maxJournal) {
		p.entries[i] = hash{}
	}
	entries, err := journal.ReadEntries([]byte(`[{"version":1,"kind":7,"sequenceID":9000000}]`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.add(entries); fault.KindOf(err) != fault.KindInvalid {
		t.Errorf("an entry after the last possible one: %v, want that it is refused", err)
	}
}

// exportOf returns the export of a stored state.
func exportOf(t *testing.T, s *Store, key string) string {
	t.Helper()
	stored, err := s.Open(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := stored.Export(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
