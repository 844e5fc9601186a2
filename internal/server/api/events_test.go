package api_test

import (
	"fmt"
	"net/http"
	"path"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func manyEvents(from, n int) map[string]any {
	list := make([]map[string]any, 0, n)
	for i := range n {
		list = append(list, map[string]any{"sequence": from + i, "timestamp": 1})
	}
	return map[string]any{"events": list}
}

// singleEvents returns batches of one event each, with from <= sequence number < to.
func singleEvents(from, to int64) []store.EventBatch {
	var out []store.EventBatch
	for i := from; i < to; i++ {
		out = append(out, store.EventBatch{Last: i, Events: 1, Body: fmt.Sprintf(`{"sequence":%d,"timestamp":1}`, i)})
	}
	return out
}

// TestEventBatchesLeaveTheWriterToOthers checks that the writes of another tenant run between the
// pieces of a batch, and not only after the batch.
func TestEventBatchesLeaveTheWriterToOthers(t *testing.T) {
	f := newFixture(t, options{})
	u := f.start(f.stack("dev"), "update")
	id := u.path[len(u.path)-36:]
	const n = 10_000
	done := make(chan answer, 1)
	go func() { done <- u.send("POST", "/events/batch", manyEvents(0, n)) }()
	seen := map[int64]bool{}
	for running := true; running; {
		select {
		case a := <-done:
			a.want(200, nil)
			running = false
		default:
			err := f.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
				last, err := tx.LastSequence(id)
				seen[last] = true
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(seen) < 4 { // of 100 transactions
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
	err := f.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		_, _, err := tx.InsertEvents(id, singleEvents(1, next))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cost := testing.AllocsPerRun(5, func() {
		err := f.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			next++
			_, _, err := tx.InsertEvents(id, singleEvents(next, next+1))
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

// TestPurgingAStackLeavesTheWriterToOthers checks that the writes of another tenant run while a
// stack with many events is purged.
func TestPurgingAStackLeavesTheWriterToOthers(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	u := f.start(path, "update")
	id := u.path[len(u.path)-36:]
	err := f.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		_, _, err := tx.InsertEvents(id, singleEvents(0, 20_000))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	u.send("POST", "/complete", map[string]string{"status": "succeeded"}).want(204, nil)
	f.do("DELETE", path, nil).want(204, nil)
	const deleted = "/api/orgs/acme/restore-stack"
	var list struct{ DeletedStacks []struct{ ID string } }
	f.do("GET", deleted, nil).want(200, &list)
	done := make(chan answer, 1)
	go func() { done <- f.do("DELETE", deleted+"/"+list.DeletedStacks[0].ID, nil) }()
	seen := map[string]bool{}
	for running := true; running; {
		select {
		case a := <-done:
			a.want(204, nil)
			running = false
		default:
			err := f.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
				first, err := tx.EventRanges(id, 0, 1)
				seen[fmt.Sprint(first)] = true
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(seen) < 4 { // of 40 transactions
		t.Errorf("other writes ran only at events %v", seen)
	}
}

// TestEventsOfAResourceAreFound checks the query parameter urn, which pulumi stack history events
// sends.
func TestEventsOfAResourceAreFound(t *testing.T) {
	f := newFixture(t, options{})
	u := f.start(f.stack("dev"), "preview")
	var list []any
	for i, urn := range []string{"urn:pulumi:dev::p::t:t:T::a", "urn:pulumi:dev::p::t:t:T::b", "urn:pulumi:dev::p::t:t:T::a"} {
		list = append(list, map[string]any{"sequence": i, "timestamp": 1, "diagnosticEvent": map[string]string{"urn": urn, "message": "m"}})
	}
	u.send("POST", "/events/batch", map[string]any{"events": list}).want(200, nil)
	var p eventPage
	f.do("GET", u.path+"/events?urn=urn%3Apulumi%3Adev%3A%3Ap%3A%3At%3At%3AT%3A%3Aa", nil).want(200, &p)
	if len(p.Events) != 2 || p.Events[0].Sequence != 0 || p.Events[1].Sequence != 2 || p.ContinuationToken == nil || *p.ContinuationToken != "3" {
		t.Errorf("events of the resource: %+v", p)
	}
}

// TestAnErrorEventDoesNotFailAnUpdate records the event with which a client reports that its own
// checks of the state failed. It is a note for debugging, so the result of the update stays, and
// readers receive the event as it was sent.
func TestAnErrorEventDoesNotFailAnUpdate(t *testing.T) {
	f := newFixture(t, options{})
	u := f.start(f.stack("dev"), "update")
	mismatch := event(1)
	mismatch["errorEvent"] = map[string]string{"error": "snapshot mismatch: resources differ"}
	u.send("POST", "/events/batch", map[string]any{"events": []any{event(0), mismatch, event(2)}}).want(200, nil)
	u.send("POST", "/complete", map[string]string{"status": "succeeded"}).want(204, nil)
	f.do("GET", u.path, nil).want(200, nil).says(`"succeeded"`)
	var p struct {
		Events []struct {
			Sequence   int
			ErrorEvent struct{ Error string }
		}
		ContinuationToken *string
	}
	f.do("GET", u.path+"/events", nil).want(200, &p)
	if len(p.Events) != 3 || p.Events[1].ErrorEvent.Error != "snapshot mismatch: resources differ" || p.ContinuationToken != nil {
		t.Errorf("events: %+v", p)
	}
}

// TestEventsByVersion checks that clients can name an update by its version, as pulumi policy exception new does.
func TestEventsByVersion(t *testing.T) {
	f := newFixture(t, options{})
	u := f.start(f.stack("dev"), "update")
	u.send("POST", "/events/batch", manyEvents(0, 3)).want(200, nil)
	var page struct{ Events []any }
	f.do("GET", path.Dir(u.path)+"/1/events", nil).want(200, &page)
	if len(page.Events) != 3 {
		t.Errorf("update 1 has %d events", len(page.Events))
	}
	f.do("GET", path.Dir(u.path)+"/2/events", nil).want(404, nil).says("has no update")
}
