package stacks_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// sent returns an event whose content identifies the batch that contained it.
func sent(sequence, batch int) json.RawMessage {
	return fmt.Appendf(nil, `{"sequence":%d,"timestamp":%d}`, sequence, batch)
}

// events returns the events that a reader receives who follows the tokens until they stay the same.
func (s *stackTest) events(u store.Update, token, urn string) (list []string, last string) {
	s.t.Helper()
	for {
		page, err := s.service.Events(s.t.Context(), u, token, urn)
		s.must(err)
		for _, e := range page.Events {
			list = append(list, string(e))
		}
		if page.Next == "" || page.Next == token {
			return list, page.Next
		}
		token = page.Next
	}
}

// TestEventBatchesInAnyOrder records random batches, which overlap, repeat each other and contain
// gaps. A reader receives each event once, as it was first stored, and nothing behind the first
// missing event.
func TestEventBatchesInAnyOrder(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		u := s.start(stacks.KindPreview, 0)
		const n = 600
		random := rand.New(rand.NewPCG(1, 2))
		stored := map[int]json.RawMessage{}
		wanted := func(from int) []string {
			var out []string
			for stored[from] != nil {
				out = append(out, string(stored[from]))
				from++
			}
			return out
		}
		record := func(batch int, sequences []int) {
			var raw []json.RawMessage
			for _, sequence := range sequences {
				raw = append(raw, sent(sequence, batch))
				if stored[sequence] == nil {
					stored[sequence] = sent(sequence, batch)
				}
			}
			s.must(s.service.RecordEvents(t.Context(), u, raw))
		}
		check := func(from int) {
			got, token := s.events(u, fmt.Sprint(from), "")
			want := wanted(from)
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Fatalf("from %d on, got\n%s\nwant\n%s", from, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if token != fmt.Sprint(from+len(want)) {
				t.Errorf("from %d on, %d events are followed by the token %q", from, len(want), token)
			}
		}
		for batch := range 40 {
			var sequences []int
			step := 1 + random.IntN(3)
			for at := random.IntN(n); at < n && len(sequences) < 50; at += step {
				sequences = append(sequences, at)
			}
			random.Shuffle(len(sequences), func(i, j int) { sequences[i], sequences[j] = sequences[j], sequences[i] })
			record(batch, sequences)
			if batch%3 == 0 {
				record(batch+1000, sequences) // again
			}
		}
		check(0)
		var all []int
		for sequence := range n {
			all = append(all, sequence)
		}
		record(2000, all)
		for _, from := range []int{0, 1, 49, 50, 333, n - 1} {
			check(from)
		}
		s.finish(u)
		if got, token := s.events(u, "", ""); len(got) != n || token != "" {
			t.Errorf("after the end, a reader received %d events and the token %q", len(got), token)
		}
	})
}

// recordMany records the events of n resources in batches as stock clients send them.
func (s *stackTest) recordMany(u store.Update, n int) {
	s.t.Helper()
	var batch []json.RawMessage
	for i := range n {
		batch = append(batch, fmt.Appendf(nil, `{"sequence":%d,"resourcePreEvent":{"metadata":{"urn":"urn:%d","type":"%s"}}}`,
			i, i%1000, strings.Repeat("t", 500)))
		if len(batch) == 50 || i == n-1 {
			s.must(s.service.RecordEvents(s.t.Context(), u, batch))
			batch = nil
		}
	}
}

// TestAPageOfEventsCostsOnlyItself reads the last page of a short and of a long update, and records
// the next batch. The update's length must not matter.
func TestAPageOfEventsCostsOnlyItself(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		cost := func(n int) (read, write float64) {
			u := s.start(stacks.KindPreview, 0)
			s.recordMany(u, n)
			read = testing.AllocsPerRun(3, func() {
				page, err := s.service.Events(t.Context(), u, fmt.Sprint(n-200), "")
				if err != nil || len(page.Events) != 200 || page.Next != fmt.Sprint(n) {
					t.Fatalf("%d events, next %q, %v", len(page.Events), page.Next, err)
				}
			})
			next := n
			write = testing.AllocsPerRun(3, func() {
				s.must(s.service.RecordEvents(t.Context(), u, []json.RawMessage{sent(next, 0), sent(next+1, 0)}))
				next += 2
			})
			return read, write
		}
		read, write := cost(500)
		longRead, longWrite := cost(10_000)
		if longRead > 1.5*read || longWrite > 1.5*write {
			t.Errorf("with 10000 events instead of 500, a page takes %.0f allocations instead of %.0f, and a batch %.0f instead of %.0f",
				longRead, read, longWrite, write)
		}
	})
}

// TestEventsOfAResource checks that one request finds a resource's events in all of an update of
// usual size.
func TestEventsOfAResource(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		u := s.start(stacks.KindPreview, 0)
		s.recordMany(u, 5000)
		page, err := s.service.Events(t.Context(), u, "", "urn:7")
		s.must(err)
		var got []int
		for _, e := range page.Events {
			var event struct{ Sequence int }
			s.must(json.Unmarshal(e, &event))
			got = append(got, event.Sequence)
		}
		if want := []int{7, 1007, 2007, 3007, 4007}; fmt.Sprint(got) != fmt.Sprint(want) || page.Next != "5000" {
			t.Errorf("the resource's events are %v, want %v; next %q", got, want, page.Next)
		}
		s.finish(u)
		if got, token := s.events(u, "2000", "urn:7"); len(got) != 3 || token != "" {
			t.Errorf("after the end, from 2000 on: %d events and the token %q", len(got), token)
		}
		if page, err = s.service.Events(t.Context(), u, "", "urn:none"); err != nil || len(page.Events) != 0 || page.Next != "" {
			t.Errorf("events of an unknown resource: %d, next %q, %v", len(page.Events), page.Next, err)
		}
	})
}

// TestEventsAfterTheEnd records events after an update has ended. They are stored for an hour, and
// count for the quota although the update has been measured.
func TestEventsAfterTheEnd(t *testing.T) {
	l := newLeaseTest(t)
	u := l.start()
	l.must(l.service.Complete(t.Context(), u, stacks.Succeeded))
	record := func(sequence int) error {
		return l.service.RecordEvents(t.Context(), u, []json.RawMessage{sent(sequence, 0)})
	}
	unmeasured := func() int {
		list, err := store.Read(t.Context(), l.db, func(tx *store.Tx) ([]store.Unmeasured, error) { return tx.UnmeasuredEvents(tx.Now(), 10) })
		l.must(err)
		return len(list)
	}
	l.up(30 * time.Minute)
	l.must(l.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.SetEventBytes(u.ID, 0) }))
	if n := unmeasured(); n != 0 {
		t.Fatalf("%d updates are unmeasured after the measurement", n)
	}
	l.must(record(0))
	if n := unmeasured(); n != 1 {
		t.Error("the events after the measurement are not measured")
	}
	l.up(31 * time.Minute)
	if err := record(1); fault.KindOf(err) != fault.KindConflict {
		t.Errorf("events an hour after the end: %v, want a conflict", err)
	}
}
