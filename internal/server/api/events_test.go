package api_test

import (
	"fmt"
	"net/http"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

func manyEvents(from, n int) map[string]any {
	list := make([]map[string]any, 0, n)
	for i := range n {
		list = append(list, map[string]any{"sequence": from + i, "timestamp": 1})
	}
	return map[string]any{"events": list}
}

// TestEventBatchesLeaveTheWriterToOthers checks that the writes of another tenant run between the
// pieces of a batch, and not only after the batch.
func TestEventBatchesLeaveTheWriterToOthers(t *testing.T) {
	f := newFixture(t, options{})
	u := f.start(f.stack("dev"), "update")
	id := u.path[len(u.path)-36:]
	const n = 5000
	done := make(chan answer, 1)
	go func() { done <- u.send("POST", "/events/batch", manyEvents(0, n)) }()
	seen := map[int64]bool{}
	for running := true; running; {
		select {
		case a := <-done:
			a.want(200, nil)
			running = false
		default:
			err := f.db.Write(t.Context(), func(tx *store.Tx) error {
				last, err := tx.LastSequence(id)
				seen[last] = true
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(seen) < 5 { // of 50 transactions
		t.Errorf("other writes ran only at events %v", seen)
	}
	var page struct{ Events []any }
	f.do("GET", u.path+"/events", nil).want(200, &page)
	if len(page.Events) == 0 {
		t.Error("the events cannot be read")
	}
}

// TestMissingEventsCostNothing records single events while the first event is missing. The cost of
// an event must not depend on the number of stored events.
func TestMissingEventsCostNothing(t *testing.T) {
	f := newFixture(t, options{})
	u := f.start(f.stack("dev"), "update")
	id := u.path[len(u.path)-36:]
	next := int64(20_001)
	err := f.db.Write(t.Context(), func(tx *store.Tx) error {
		var events []store.EngineEvent
		for i := int64(1); i < next; i++ {
			events = append(events, store.EngineEvent{Sequence: i, Body: "{}"})
		}
		_, err := tx.InsertEvents(id, events)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cost := testing.AllocsPerRun(5, func() {
		err := f.db.Write(t.Context(), func(tx *store.Tx) error {
			next++
			_, err := tx.InsertEvents(id, []store.EngineEvent{{Sequence: next, Body: "{}"}})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	if cost > 10_000 {
		t.Errorf("recording one event after a gap takes %.0f allocations with %d events stored", cost, next)
	}
	u.send("POST", "/events/batch", manyEvents(0, 1)).want(200, nil)
	var page struct {
		Events            []struct{ Sequence int64 }
		ContinuationToken *string
	}
	for read, token := int64(0), ""; read < 20_001; token = *page.ContinuationToken {
		page.ContinuationToken = nil
		f.do("GET", u.path+"/events?continuationToken="+token, nil).want(200, &page)
		if len(page.Events) == 0 || page.ContinuationToken == nil {
			t.Fatalf("after %d events there are no more", read)
		}
		read += int64(len(page.Events))
	}
}

// TestEventNumbersAreBounded checks that the server accepts small gaps in sequence numbers, but not
// large ones.
func TestEventNumbersAreBounded(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		u := f.start(f.stack("dev"), "update")
		for _, tt := range []struct {
			sequence string
			status   int
		}{
			{"9223372036854775807", 400}, // the update's first event
			{"5", 200},
			{"100000", 200},
			{"9223372036854775807", 400},
			{"9223372036854775808", 400},
			{"5000000", 400},
			{"-1", 400},
			{"1e3", 400},
			{"1.5", 400},
			{`"7"`, 400},
			{"null", 400},
			{"200000", 200},
		} {
			u.send("POST", "/events/batch", []byte(`{"events":[{"timestamp":1,"sequence":`+tt.sequence+`}]}`)).want(tt.status, nil)
			u.send("POST", "/events", []byte(`{"timestamp":1,"sequence":`+tt.sequence+`}`)).want(tt.status, nil)
		}
		u.send("POST", "/events/batch", manyEvents(0, 10_001)).want(http.StatusRequestEntityTooLarge, nil)
		u.send("POST", "/complete", map[string]string{"status": "succeeded"}).want(204, nil)
	})
}

// TestDeletingAStackLeavesTheWriterToOthers checks that the writes of another tenant run while a
// stack with many events is deleted.
func TestDeletingAStackLeavesTheWriterToOthers(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	u := f.start(path, "update")
	id := u.path[len(u.path)-36:]
	const n = 5000
	u.send("POST", "/events/batch", manyEvents(0, n)).want(200, nil)
	u.send("POST", "/complete", map[string]string{"status": "succeeded"}).want(204, nil)
	done := make(chan answer, 1)
	go func() { done <- f.do("DELETE", path, nil) }()
	seen := map[string]bool{}
	for running := true; running; {
		select {
		case a := <-done:
			a.want(204, nil)
			running = false
		default:
			err := f.db.Write(t.Context(), func(tx *store.Tx) error {
				first, err := tx.EventSizes(id, 0, n, 1)
				seen[fmt.Sprint(first)] = true
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(seen) < 4 { // of 10 transactions
		t.Errorf("other writes ran only at events %v", seen)
	}
}
