package stacks_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/journal"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
)

func TestRunningUpdateIsExportable(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		s.importState("a", "b")
		u := s.start(stacks.KindUpdate, 1)
		s.shows(0, "a= b=")
		s.shows(2, "")
		s.record(u, begins(1, 1, "c"), begins(2, 2, "d"))
		s.shows(0, "a= b= creating c creating d")
		s.record(u, creates(3, 1, "c"), replaces(4, 3, 0, "a=2"))
		s.shows(0, "c= a=2 b= creating d")
		s.shows(2, "c= a=2 b= creating d")
		if u = s.reload(u); u.ResourceCount != 3 {
			t.Errorf("the update has %d resources, want 3", u.ResourceCount)
		}
		running := s.exported(0)
		s.finish(u)
		if got := s.exported(0); got != running {
			t.Errorf("the end of the update changed the state\nfrom %s\nto   %s", running, got)
		}
		s.fold()
		if got := s.exported(0); got != running {
			t.Errorf("folding changed the state\nfrom %s\nto   %s", running, got)
		}
		if !strings.Contains(running, `"version":"v3.1.2"`) {
			t.Errorf("the manifest does not name the version of the client: %s", running)
		}
		if row, batches := s.stored(); row.Form == store.Journal || batches != 0 {
			t.Errorf("the journal was not folded: %s with %d batches", row.Form, batches)
		}
		s.shows(1, "a= b=")
	})
}

// TestEveryEndFolds ends updates in every possible way, and then checks that their journals are
// folded.
func TestEveryEndFolds(t *testing.T) {
	l := newLeaseTest(t)
	s := &stackTest{t: t, db: l.db, service: l.service, user: l.user, stack: l.stack}
	version := int64(0)
	for name, end := range map[string]func(u store.Update) error{
		"completed": func(u store.Update) error { return l.service.Complete(t.Context(), u, stacks.Failed) },
		"cancelled": func(u store.Update) error { return l.service.Cancel(t.Context(), u, "x") },
		"expired": func(store.Update) error {
			l.up(stacks.MaxLease + beatEvery)
			_, err := l.service.ExpireLeases(t.Context())
			return err
		},
		"replaced": func(store.Update) error {
			l.up(stacks.MaxLease + beatEvery)
			s.finish(s.start(stacks.KindUpdate, 1)) // this update stores nothing
			version++
			return nil
		},
	} {
		u := s.start(stacks.KindUpdate, 1)
		version++
		was := version
		s.record(u, begins(1, 1, "x"), creates(2, 2, name))
		s.must(end(u))
		if err := record(t, l.service, u, creates(3, 3, "late")); fault.KindOf(err) != fault.KindForbidden && fault.KindOf(err) != fault.KindConflict {
			t.Errorf("%s: a late entry: %v", name, err)
		}
		if got := s.resources(s.exported(was)); !strings.HasPrefix(got, name+"=") || !strings.HasSuffix(got, "creating x") {
			t.Errorf("%s: the state is %q", name, got)
		}
	}
	before := map[int64]string{}
	for v := int64(1); v <= version; v++ {
		before[v] = s.exported(v)
	}
	s.fold()
	if row, batches := s.stored(); row.Form == store.Journal || batches != 0 {
		t.Errorf("the last journal was not folded: %s with %d batches", row.Form, batches)
	}
	for v, want := range before {
		if got := s.exported(v); got != want {
			t.Errorf("folding changed version %d\nfrom %s\nto   %s", v, want, got)
		}
	}
}

func TestRepeatedEntries(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		u := s.start(stacks.KindUpdate, 1)
		one, two, three, five := creates(1, 1, "a"), creates(2, 2, "b"), creates(3, 3, "c"), creates(5, 5, "e")
		s.record(u, one, two)
		s.record(u, one, two) // the response was lost
		s.record(u, two, three, five, five)
		s.record(u, creates(4, 4, "d")) // fills the gap late
		s.shows(0, "a= b= c= e= d=")
		if _, batches := s.stored(); batches != 3 {
			t.Errorf("%d batches are stored, want 3", batches)
		}
		// Another server has not seen these entries.
		other := s.replica(db)
		s.must(record(t, other, u, one, five))
		s.refused(fault.KindConflict, "sequence id 5", record(t, other, u, creates(6, 6, "f"), creates(5, 5, "x")))
		s.refused(fault.KindConflict, "sequence id 7", record(t, other, u, creates(7, 7, "g"), creates(7, 8, "g")))
		s.shows(0, "a= b= c= e= d=")
	})
}

func TestReplicasTakeTurns(t *testing.T) {
	turns := func(t *testing.T, first, second *store.DB) {
		t.Helper()
		s := newStackTest(t, first)
		s.importState("old")
		services := []*stacks.Service{s.service, s.replica(second), s.replica(second)}
		u := s.start(stacks.KindUpdate, 1)
		want := ""
		for i := range int64(12) {
			service := services[i%3]
			name := fmt.Sprintf("r%d", i)
			s.must(record(t, service, u, begins(2*i+1, i+1, name), creates(2*i+2, i+1, name)))
			want += name + "= "
			if got, err := s.export(services[(i+1)%3], 0); err != nil || s.resources(got) != want+"old=" {
				t.Fatalf("another server exports %q, %v, want %q", s.resources(got), err, want+"old=")
			}
		}
		// The servers receive the entries at the same time, so the order of batches is random.
		var all sync.WaitGroup
		for i, service := range services {
			all.Go(func() {
				for k := range int64(8) {
					id := 100 + int64(i)*8 + k
					for {
						err := record(t, service, u, creates(id, id, fmt.Sprintf("p%d", id)))
						if fault.KindOf(err) == fault.KindUnavailable || errors.Is(err, store.ErrBusy) {
							continue // the client retries
						}
						if err != nil {
							t.Errorf("server %d: %v", i, err)
						}
						break
					}
				}
			})
		}
		all.Wait()
		if u = s.reload(u); u.ResourceCount != 1+12+24 {
			t.Errorf("the update has %d resources, want %d", u.ResourceCount, 1+12+24)
		}
		if got := strings.Count(s.exported(0), `"urn"`); got != 1+12+24 {
			t.Errorf("the state has %d resources, want %d", got, 1+12+24)
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		db := storetest.SQLite(t)
		turns(t, db, db)
	})
	t.Run("postgres", func(t *testing.T) {
		first, second := storetest.PostgresPair(t)
		turns(t, first, second)
	})
}

// TestRefusedEntriesStoreNothing sends each invalid entry after a valid one in the same batch. The
// server must store neither.
func TestRefusedEntriesStoreNothing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		s.importState("a", "b")
		u := s.start(stacks.KindUpdate, 1)
		s.record(u, creates(1, 1, "c"))
		before := s.exported(0)
		for _, tt := range []struct{ text, entry string }{
			{"version", `{"version":3,"kind":2,"sequenceID":2,"operationID":1}`},
			{"version", `{"kind":2,"sequenceID":2,"operationID":1}`},
			{"kind", `{"version":1,"kind":11,"sequenceID":2,"operationID":1}`},
			{"sequenceID", `{"version":1,"kind":2,"sequenceID":0,"operationID":1}`},
			{"sequenceID", `{"version":1,"kind":2,"sequenceID":"2","operationID":1}`},
			{"object", `7`},
			{"resource 2", replaces(3, 3, 2, "x")},
			{"resource -1", replaces(3, 3, -1, "x")},
			{"operation 9", entry(journal.Success, 3, 3, `"removeNew":9`)},
			{"operation 9", entry(journal.Outputs, 3, 3, `"removeNew":9,"state":`+resource("x"))},
		} {
			s.refused(fault.KindInvalid, tt.text, record(t, s.service, u, creates(2, 2, "d"), tt.entry))
			if _, batches := s.stored(); batches != 1 {
				t.Errorf("%s: %d batches are stored, want 1", tt.entry, batches)
			}
		}
		if after := s.exported(0); after != before {
			t.Errorf("the state changed\nfrom %s\nto   %s", before, after)
		}
		s.record(u, creates(2, 2, "d")) // the rejected entry was not recorded as sent
		s.shows(0, "c= d= a= b=")
	})
}

func TestUpdatesThatMaySendNoJournal(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		state := func() *states.State {
			st, err := states.Parse([]byte(`{"version":3,"deployment":{"resources":[]}}`), nil)
			s.must(err)
			return st
		}
		refused := func(want fault.Kind, text string, u store.Update) {
			t.Helper()
			s.refused(want, text, record(t, s.service, u, creates(1, 1, "a")))
		}
		preview := s.start(stacks.KindPreview, 1)
		refused(fault.KindForbidden, "preview", preview)
		if preview.JournalVersion != 0 {
			t.Errorf("a preview was offered version %d of the journal", preview.JournalVersion)
		}
		plain := s.start(stacks.KindUpdate, 0)
		refused(fault.KindConflict, "started without a journal", plain)
		s.must(s.service.Checkpoint(t.Context(), plain, state()))
		s.finish(plain)

		both := s.start(stacks.KindUpdate, 7)
		if both.JournalVersion != journal.Version {
			t.Errorf("a newer client was offered version %d of the journal, want %d", both.JournalVersion, journal.Version)
		}
		s.must(s.service.Checkpoint(t.Context(), both, state()))
		refused(fault.KindConflict, "has sent a checkpoint", both)
		s.finish(both)
		refused(fault.KindConflict, "already completed", s.reload(both))

		journaled := s.start(stacks.KindUpdate, 1)
		s.record(journaled, creates(1, 1, "a"))
		s.refused(fault.KindConflict, "has sent a journal", s.service.Checkpoint(t.Context(), journaled, state()))
		s.shows(0, "a=")
		s.must(s.service.Cancel(t.Context(), journaled, "x"))
		refused(fault.KindConflict, "cancelled", s.reload(journaled))
		refused(fault.KindConflict, "cancelled", journaled) // cancelled since the request began
		s.shows(0, "a=")
	})
}

// TestJournalsOfDeploymentsThatMayNotWrite checks that every batch is stored only if the MayWrite
// hook permits it.
func TestJournalsOfDeploymentsThatMayNotWrite(t *testing.T) {
	s := newStackTest(t, storetest.SQLite(t))
	refusal := errors.New("no")
	var answer error
	s.service.Follow(stacks.Hooks{
		LinkUpdate: func(*store.Tx, store.Stack, string) (string, error) { return "d1", nil },
		MayWrite:   func(*store.Tx, string) error { return answer },
	})
	u, err := s.service.CreateUpdate(t.Context(), s.user, s.stack, stacks.KindUpdate,
		stacks.Program{Metadata: stacks.Metadata{Environment: map[string]string{"ci.build.id": "1"}}})
	s.must(err)
	_, err = s.service.Start(t.Context(), u, nil, 1)
	s.must(err)
	u = s.reload(u)
	s.record(u, creates(1, 1, "a"))
	answer = refusal
	if err := record(t, s.service, u, creates(2, 2, "b")); !errors.Is(err, refusal) {
		t.Errorf("the batch: %v", err)
	}
	answer = nil
	s.shows(0, "a=")
	s.record(u, creates(3, 3, "c"))
	s.shows(0, "a= c=")
}

// TestMigrations migrates a state, first with an entry that the server must refuse because of what is
// stored, and checks the state while the update runs, after it and after its journal is folded.
func TestMigrations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		s.importState("a=1", "b=2")
		u := s.start(stacks.KindUpdate, 2)
		migrates := func(sequence int64, layout, name string) string {
			return fmt.Sprintf(`{"version":2,"kind":10,"sequenceID":%d,"operationID":0,"removeOld":null,"layout":[%s,{"stateIndex":0}],"states":[%s]}`,
				sequence, layout, resource(name))
		}
		s.record(u, begins(1, 1, "c"))
		s.refused(fault.KindInvalid, "an operation has not finished", record(t, s.service, u, migrates(2, `{"baseIndex":1}`, "m")))
		s.record(u, creates(3, 1, "c"))
		s.refused(fault.KindInvalid, "unknown resource 2", record(t, s.service, u, migrates(2, `{"baseIndex":2}`, "m")))
		s.record(u, migrates(2, `{"baseIndex":1}`, "m=3"))
		s.shows(0, "c= b=2 m=3")
		s.record(u, replaces(4, 2, 1, "m=4"), migrates(5, `{"baseIndex":0}`, "n"))
		s.shows(0, "c= m=4 b=2 n=")
		running := s.exported(0)
		s.finish(u)
		s.fold()
		if got := s.exported(0); got != running {
			t.Errorf("folding changed the state\nfrom %s\nto   %s", running, got)
		}
		if got := s.reload(u).ResourceCount; got != 4 {
			t.Errorf("the update has %d resources, want 4", got)
		}
	})
}

// TestBasesOfJournals checks that the server rejects states on which no journal can be based.
func TestBasesOfJournals(t *testing.T) {
	members := strings.TrimSuffix(strings.Repeat(`"m":0,`, 1000), ",")
	for name, body := range map[string]string{
		"resources that are no array": `{"version":3,"deployment":{"resources":{}}}`,
		"features that are no array":  `{"version":3,"features":5,"deployment":{}}`,
		"features that are no texts":  `{"version":3,"features":[5],"deployment":{}}`,
		"a great many members":        `{"version":3,"deployment":{` + members + `}}`,
	} {
		if _, err := states.Parse([]byte(body), nil); fault.KindOf(err) != fault.KindInvalid {
			t.Errorf("a state with %s: %v, want that it is refused", name, err)
		}
	}
}

func TestNegativeJournalVersion(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		u := s.start(stacks.KindUpdate, -5)
		if u.JournalVersion != 0 {
			t.Errorf("the update has the journal version %d, want 0", u.JournalVersion)
		}
	})
}
