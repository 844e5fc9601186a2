package stacks_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/journal"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
)

// names returns the names of n resources. The names are random, so that the state compresses
// poorly.
func names(n int) []string {
	random := rand.New(rand.NewPCG(1, 2))
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("r%d=%x%x%x", i, random.Uint64(), random.Uint64(), random.Uint64()))
	}
	return out
}

// TestChains makes many small changes, and checks that a state is stored whole after 16 deltas.
func TestChains(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		s.importState(names(500)...)
		want := map[int64]string{1: s.exported(1)}
		var depths []int64
		for i := range int64(20) {
			u := s.start(stacks.KindUpdate, 1)
			s.record(u, replaces(1, 1, i, fmt.Sprintf("changed%d", i)))
			s.finish(u)
			if i%3 == 0 {
				s.fold()
			}
			want[i+2] = s.exported(0)
		}
		s.fold()
		var sizes []int64
		for v := int64(1); v <= 21; v++ {
			if got := s.exported(v); got != want[v] {
				t.Errorf("version %d changed\nfrom %.300s\nto   %.300s", v, want[v], got)
			}
			row := s.row(v)
			depths, sizes = append(depths, row.Depth), append(sizes, row.Size)
			if (row.Form == store.Delta) != (row.Depth > 0) || row.Form == store.Journal {
				t.Errorf("version %d is a %s of depth %d", v, row.Form, row.Depth)
			}
			if row.Form == store.Delta && row.Size*20 > row.FullSize {
				t.Errorf("version %d: a change of one of 500 resources needs %d bytes of %d", v, row.Size, row.FullSize)
			}
		}
		if got, want := fmt.Sprint(depths), "[0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 0 1 2 3]"; got != want {
			t.Errorf("the depths are %s, want %s (sizes %v)", got, want, sizes)
		}
		if n, err := s.service.SweepStatesOlder(t.Context(), -time.Hour); n != 0 || err != nil {
			t.Errorf("%d blobs were removed, %v", n, err)
		}
		s.shows(21, s.resources(want[21]))
	})
}

// row returns the row of the state of a version.
func (s *stackTest) row(version int64) store.State {
	s.t.Helper()
	row, err := store.Read(s.t.Context(), s.db, func(tx *store.Tx) (store.State, error) {
		u, err := tx.UpdateByVersion(s.stack.ID, version)
		if err != nil {
			return store.State{}, err
		}
		return tx.State(u.StateBlob)
	})
	s.must(err)
	return row
}

// TestLargeChangesAreStoredWhole checks that a chain of deltas needs at most half as many bytes as
// its whole state.
func TestLargeChangesAreStoredWhole(t *testing.T) {
	s := newStackTest(t, storetest.SQLite(t))
	all := names(200)
	s.importState(all[:100]...)
	for _, part := range []int{30, 30, 10} {
		u := s.start(stacks.KindUpdate, 1)
		var entries []string
		for i := range part {
			entries = append(entries, replaces(int64(i)+1, int64(i)+1, 99-int64(i), all[100+i]))
		}
		s.record(u, entries...)
		s.finish(u)
	}
	s.fold()
	total := map[store.Form]int{}
	for v := int64(2); v <= 4; v++ {
		row := s.row(v)
		total[row.Form]++
		if row.Form == store.Delta && 2*row.DeltaSize > row.FullSize {
			t.Errorf("version %d: the deltas need %d bytes of %d", v, row.DeltaSize, row.FullSize)
		}
	}
	if total[store.Delta] == 0 || total[store.Full] == 0 {
		t.Errorf("the forms are %v, want both", total)
	}
}

// TestFoldRaces folds journals on several servers while states are exported and the next update
// runs. Folding must not change the exports.
func TestFoldRaces(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		s.importState("a", "b")
		other := s.replica(db)
		stop := make(chan struct{})
		var all sync.WaitGroup
		for _, service := range []*stacks.Service{s.service, other} {
			all.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if err := service.FoldFinished(t.Context()); err != nil {
						t.Errorf("folding: %v", err)
						return
					}
				}
			})
		}
		for i := range int64(10) {
			u := s.start(stacks.KindUpdate, 1)
			name := fmt.Sprintf("r%d", i)
			s.record(u, begins(1, 1, name))
			s.record(u, creates(2, 1, name))
			running := s.exported(0)
			s.finish(u)
			for range 5 {
				if got := s.exported(i + 2); got != running {
					t.Fatalf("version %d changed\nfrom %s\nto   %s", i+2, running, got)
				}
			}
		}
		close(stop)
		all.Wait()
		s.fold()
		s.shows(0, "r9= r8= r7= r6= r5= r4= r3= r2= r1= r0= a= b=")
		if row, batches := s.stored(); row.Form == store.Journal || batches != 0 {
			t.Errorf("the last journal was not folded: %s with %d batches", row.Form, batches)
		}
		// Servers that lose the race remove their blobs at once.
		if n, err := s.service.SweepStatesOlder(t.Context(), -time.Hour); n != 0 || err != nil {
			t.Errorf("%d blobs were left, %v", n, err)
		}
	})
}

// TestFolderRuns checks that the end of an update triggers folding.
func TestFolderRuns(t *testing.T) {
	s := newStackTest(t, storetest.SQLite(t))
	ctx, stop := context.WithCancel(t.Context())
	var folder sync.WaitGroup
	folder.Go(func() { s.must(s.service.FoldJournals(ctx)) })
	defer folder.Wait()
	defer stop()
	u := s.start(stacks.KindUpdate, 1)
	s.record(u, creates(1, 1, "a"))
	s.finish(u)
	for end := time.Now().Add(30 * time.Second); ; {
		if row, _ := s.stored(); row.Form == store.Full {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the journal was not folded")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestDamagedStatesAreNotExported(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		s.importState(names(100)...) // version 1
		for range 2 {                // versions 2 and 3
			u := s.start(stacks.KindUpdate, 1)
			s.record(u, replaces(1, 1, 0, "x"))
			s.finish(u)
		}
		s.fold()
		whole := s.row(1)
		blob := s.read(whole.Blob)
		// The contents are valid, but differ from those that were written.
		s.importState(append(names(99), "other")...)
		s.write(whole.Blob, s.read(s.row(4).Blob))
		for version := int64(1); version <= 3; version++ {
			_, err := s.export(s.service, version)
			s.refused(fault.KindDamaged, fmt.Sprintf("stack 'acme/proj/dev', version %d,", version), err)
		}
		s.write(whole.Blob, blob)
		s.exported(3)
		delta := s.row(2)
		if delta.Form != store.Delta {
			t.Fatalf("version 2 is a %s", delta.Form)
		}
		blob = s.read(delta.Blob)
		for name, bad := range map[string][]byte{"cut": blob[:len(blob)-9], "empty": {}, "another": s.read(whole.Blob)} {
			s.write(delta.Blob, bad)
			_, err := s.export(s.service, 3)
			if fault.KindOf(err) != fault.KindDamaged {
				t.Errorf("%s: %v", name, err)
			}
		}
		s.must(db.Blobs().Delete(t.Context(), delta.Blob))
		_, err := s.export(s.service, 2)
		s.refused(fault.KindDamaged, "version 2", err)
		s.exported(1)
	})
}

func (s *stackTest) read(blob string) []byte {
	s.t.Helper()
	r, err := s.db.Blobs().Get(s.t.Context(), blob)
	s.must(err)
	defer r.Close()
	data, err := io.ReadAll(r)
	s.must(err)
	return data
}

func (s *stackTest) write(blob string, data []byte) {
	s.t.Helper()
	s.must(s.db.Blobs().Put(s.t.Context(), blob, bytes.NewReader(data)))
}

// TestDamagedParentIsNotFolded checks that a fold does not record the hash of a wrong state.
func TestDamagedParentIsNotFolded(t *testing.T) {
	s := newStackTest(t, storetest.SQLite(t))
	s.importState("a")
	u := s.start(stacks.KindUpdate, 1)
	s.record(u, creates(1, 1, "b"))
	s.finish(u)
	blob := s.read(s.row(1).Blob)
	s.write(s.row(1).Blob, append(bytes.Clone(blob), 0))
	s.fold()
	if row, batches := s.stored(); row.Form != store.Journal || batches != 1 {
		t.Fatalf("the journal was folded to a %s", row.Form)
	}
	s.write(s.row(1).Blob, blob)
	s.shows(0, "b= a=")
	// The server skips the journal for an hour, and the journals that are based on it.
	next := s.start(stacks.KindUpdate, 1)
	s.record(next, creates(1, 1, "c"))
	s.finish(next)
	s.fold()
	if first, second := s.row(2), s.row(3); first.Form != store.Journal || second.Form != store.Journal {
		t.Errorf("within the hour, the journals were folded to a %s and a %s", first.Form, second.Form)
	}
	s.must(s.replica(s.db).FoldFinished(t.Context()))
	if first, second := s.row(2), s.row(3); first.Form == store.Journal || second.Form == store.Journal {
		t.Errorf("another server left a %s and a %s", first.Form, second.Form)
	}
	s.shows(0, "c= b= a=")
}

func TestStacksAreDeletedWithTheirJournals(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		for i := range 3 {
			u := s.start(stacks.KindUpdate, 1)
			s.record(u, creates(1, 1, fmt.Sprintf("r%d", i)))
			s.finish(u)
			if i == 1 {
				s.fold()
			}
		}
		blob := s.row(1).Blob
		s.refused(fault.KindInvalid, "still contains resources", s.service.Delete(t.Context(), s.user, s.stack, false))
		s.must(s.service.Delete(t.Context(), s.user, s.stack, true))
		for _, table := range []string{"states", "journal_batches", "updates"} {
			if n := s.count(table); n != 0 {
				t.Errorf("table %s has %d rows", table, n)
			}
		}
		if size, err := db.Blobs().Size(t.Context(), blob); size != 0 || err != nil {
			t.Errorf("a blob of %d bytes is left, %v", size, err)
		}
	})
}

// TestOtherWritersOfStates checks checkpoints, imports and renames that follow journals.
func TestOtherWritersOfStates(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		u := s.start(stacks.KindUpdate, 1)
		s.record(u, creates(1, 1, "a"), begins(2, 2, "b"))
		s.finish(u)
		plain := s.start(stacks.KindUpdate, 0)
		for _, name := range []string{"c", "d"} {
			state, err := states.Parse([]byte(`{"version":3,"deployment":{"resources":[`+resource(name)+`]}}`), nil)
			s.must(err)
			s.must(s.service.Checkpoint(t.Context(), plain, state))
		}
		s.finish(plain)
		s.shows(0, "d=")
		next := s.start(stacks.KindRefresh, 1)
		s.record(next, entry(journal.RefreshSuccess, 1, 1, `"removeOld":0,"state":`+resource("d=new")))
		s.finish(next)
		_, err := s.service.Rename(t.Context(), s.user, s.reloaded(), "prod", "")
		s.must(err)
		s.fold()
		if got := s.exported(0); !strings.Contains(got, "urn:pulumi:prod::proj::a:b:C::d") {
			t.Errorf("the renamed state is %s", got)
		}
		s.shows(1, "a= creating b")
		s.shows(2, "d=")
		s.shows(3, "d=new")
		// The first checkpoint was replaced. No other blobs remain.
		if n, err := s.service.SweepStatesOlder(t.Context(), -time.Hour); n != 0 || err != nil {
			t.Errorf("%d blobs were left, %v", n, err)
		}
	})
}

func (s *stackTest) reloaded() store.Stack {
	s.t.Helper()
	st, err := store.Read(s.t.Context(), s.db, func(tx *store.Tx) (store.Stack, error) { return tx.Stack(s.stack.ID) })
	s.must(err)
	return st
}

// TestExpiredStatesStayWhileNeeded checks that expired versions are kept while a newer version is
// based on them.
func TestExpiredStatesStayWhileNeeded(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		s.importState(names(100)...)
		for i := range int64(3) {
			u := s.start(stacks.KindUpdate, 1)
			s.record(u, replaces(1, 1, i, "x"))
			s.finish(u)
		}
		s.fold()
		if row := s.row(4); row.Depth == 0 {
			t.Fatalf("version 4 is a %s", row.Form)
		}
		want := s.exported(4)
		expire := func(version int64) {
			t.Helper()
			s.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
				u, err := tx.UpdateByVersion(s.stack.ID, version)
				if err != nil {
					return err
				}
				return tx.ExpireState(u.ID)
			}))
		}
		for version := int64(1); version <= 3; version++ {
			expire(version)
			_, err := s.export(s.service, version)
			s.refused(fault.KindGone, fmt.Sprintf("version %d", version), err)
		}
		if n, err := s.service.SweepStatesOlder(t.Context(), -time.Hour); err != nil {
			t.Errorf("sweeping: %d, %v", n, err)
		}
		if got := s.exported(4); got != want {
			t.Errorf("version 4 changed\nfrom %s\nto   %s", want, got)
		}
		s.importState("a")
		expire(4)
		if _, err := s.service.SweepStatesOlder(t.Context(), -time.Hour); err != nil {
			t.Fatal(err)
		}
		if left := s.count("states"); left != 1 {
			t.Errorf("%d states are left, want the newest", left)
		}
		s.shows(5, "a=")
		if n, err := s.service.SweepStatesOlder(t.Context(), -time.Hour); n != 0 || err != nil {
			t.Errorf("%d blobs were left, %v", n, err)
		}
	})
}

func (s *stackTest) count(table string) int64 {
	s.t.Helper()
	n, err := store.Read(s.t.Context(), s.db, func(tx *store.Tx) (int64, error) {
		return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM "+table)
	})
	s.must(err)
	return n
}
