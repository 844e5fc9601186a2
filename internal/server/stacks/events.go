package stacks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/policies/findings"
	"workflowagent/internal/server/stacks/events"
	"workflowagent/internal/server/stacks/mask"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Bounds of one [Service.RecordEvents] call. Stock clients send up to 50 events at a time.
const (
	maxEvents = 10_000
	// maxEventGap bounds the distance of an event from the last stored one. Gaps are valid: clients
	// send batches in parallel and drop failed batches. The bound keeps the range of sequence
	// numbers small enough to iterate over.
	maxEventGap = 1 << 20
)

// Bounds of one event transaction, which blocks other writers.
const (
	eventsPerWrite     = 100
	eventBytesPerWrite = 1 << 20
)

// RecordEvents stores an update's engine events: JSON objects with a member "sequence". Batches can
// arrive in any order and more than once. RecordEvents writes a batch in several transactions.
// Clients can resend the batch after a failure.
func (s *Service) RecordEvents(ctx context.Context, u store.Update, raw []json.RawMessage) error {
	switch {
	case len(raw) == 0:
		return fault.Invalid("No events provided.")
	case len(raw) > maxEvents:
		return fault.New(fault.KindTooLarge, "%d events at a time are too many; send at most %d", len(raw), maxEvents)
	}
	secrets, err := s.knownSecrets(ctx, u)
	if err != nil {
		return err
	}
	list := make([]events.Event, 0, len(raw))
	changes := ""
	for _, r := range raw {
		seq, err := strconv.ParseInt(string(rawjson.Member(r, "sequence")), 10, 64)
		if err != nil || seq < 0 {
			return fault.Invalid("every event must have a non-negative integer member \"sequence\"")
		}
		body, err := mask.Event(secrets, r)
		if err != nil {
			return err
		}
		list = append(list, events.Event{Sequence: seq, Body: body})
		if sum := rawjson.Member(r, "summaryEvent"); sum != nil {
			changes = summaryChanges(sum)
		}
	}
	// Events are sorted, so only the first can exceed the gap limit.
	slices.SortStableFunc(list, func(a, b events.Event) int { return cmp.Compare(a.Sequence, b.Sequence) })
	for i, e := range list[1:] {
		if e.Sequence-list[i].Sequence > maxEventGap {
			return errEventGap
		}
	}
	more := false
	for len(list) > 0 {
		n := pieceOf(list)
		if more, err = s.writeEvents(ctx, u, list[:n], changes); err != nil {
			return err
		}
		list = list[n:]
	}
	for more {
		if err := s.db.Write(ctx, scope.Stack(u.OrgID, u.StackID), func(tx *store.Tx) (err error) {
			_, more, err = tx.AdvanceEvents(u.ID)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

var errEventGap = fault.Invalid("an event's sequence number exceeds the update's previous events by more than %d", maxEventGap)

func pieceOf(list []events.Event) int {
	n, size := 0, 0
	for n < len(list) && n < eventsPerWrite && (n == 0 || size+len(list[n].Body) <= eventBytesPerWrite) {
		size += len(list[n].Body)
		n++
	}
	return n
}

// writeEvents stores events in one transaction. It reports whether the update's first missing
// sequence number must be advanced further.
func (s *Service) writeEvents(ctx context.Context, u store.Update, list []events.Event, changes string) (more bool, err error) {
	id := u.ID
	runs := events.Runs(list)
	found := findingsIn(runs)
	packed, err := packAll(runs) // outside the transaction, which blocks other writers
	if err != nil {
		return false, err
	}
	err = s.db.Write(ctx, scope.Stack(u.OrgID, u.StackID), func(tx *store.Tx) error {
		cur, err := checkRecords(tx, id, list[0].Sequence)
		if err != nil {
			return err
		}
		var batches []store.EventBatch
		stored := map[int64]bool{}
		for i, run := range runs {
			add, missing, err := newEvents(tx, id, run, packed[i])
			if err != nil {
				return err
			}
			batches = append(batches, add...)
			for _, e := range missing {
				stored[e.Sequence] = true
			}
		}
		if _, more, err = tx.InsertEvents(id, batches); err != nil {
			return err
		}
		tx.Notify(ChangesTopic, id)
		if Status(cur.Status).Finished() {
			if err := tx.MeasureEventsAgain(id); err != nil {
				return err
			}
		}
		if changes != "" && changes != cur.ResourceChanges {
			if err := tx.SetResourceChanges(id, changes); err != nil {
				return err
			}
			cur.ResourceChanges = changes
		}
		if s.hooks.Recorded == nil {
			return nil
		}
		return s.hooks.Recorded(tx, cur, slices.DeleteFunc(slices.Clone(found), func(f findings.Finding) bool { return !stored[f.Sequence] }))
	})
	return more, err
}

// findingsIn returns what events say about policies.
func findingsIn(runs [][]events.Event) (out []findings.Finding) {
	for _, e := range slices.Concat(runs...) {
		if f, ok := findings.Of(e.Sequence, e.Body); ok {
			out = append(out, f)
		}
	}
	return out
}

// lateEvents is the time for which an update accepts events after its end: the last batch can be
// late, and the client of a cancelled update first ends what it is doing.
const lateEvents = time.Hour

// checkRecords returns an update if it accepts events from a sequence number on.
func checkRecords(tx *store.Tx, id string, first int64) (store.Update, error) {
	cur, now, err := readUpdate(tx, id)
	if err != nil {
		return cur, err
	}
	switch {
	case Status(cur.Status) == NotStarted:
		return cur, fault.Conflict("The Update has not started")
	case Status(cur.Status).Finished() && (cur.EventsExpired || now.Sub(cur.FinishedAt) > lateEvents):
		return cur, fault.Conflict("The Update has already completed")
	}
	if Status(cur.Status) == Running && expired(cur, now) || cur.Reason == reasonExpired {
		return cur, errLeaseLost
	}
	last, err := tx.LastSequence(id)
	if err == nil && first-maxEventGap > last { // last is -1 before the first event
		err = errEventGap
	}
	return cur, err
}

// newEvents returns the events of a run that are not stored yet, and the batches that store these. packed is the stored
// form of the whole run.
func newEvents(tx *store.Tx, id string, run []events.Event, packed store.EventBatch) (batches []store.EventBatch, missing []events.Event, err error) {
	stored, err := tx.EventRanges(id, run[0].Sequence, len(run)) // at most one batch per event overlaps
	if err != nil {
		return nil, nil, err
	}
	if missing = events.Missing(run, stored); len(missing) == len(run) {
		return []store.EventBatch{packed}, missing, nil
	}
	batches, err = packAll(events.Runs(missing))
	return batches, missing, err
}

func packAll(runs [][]events.Event) ([]store.EventBatch, error) {
	var out []store.EventBatch
	for _, run := range runs {
		batch, err := events.Pack(run)
		if err != nil {
			return nil, err
		}
		out = append(out, batch)
	}
	return out, nil
}

func summaryChanges(summary []byte) string {
	var counts map[string]int64
	// The object contains one count per operation; about twenty operations exist.
	if json.Unmarshal(rawjson.Member(summary, "resourceChanges"), &counts) != nil || counts == nil || len(counts) > 100 {
		return "{}"
	}
	out, err := json.Marshal(counts)
	if err != nil {
		return "{}"
	}
	return string(out)
}

// eventGrace is the time for which readers wait for missing events after an update has finished.
// Clients send batches in parallel and drop failed batches.
const eventGrace = 5 * time.Second

// eventPage and eventBytes bound the events of one response. A response contains at least one
// batch, even one larger than eventBytes.
const (
	eventPage  = 1000
	eventBytes = 1 << 20
)

// eventScan bounds the batches that one request searches for a resource's events.
const eventScan = 16 << 20

// EventPage is a page of an update's events.
type EventPage struct {
	Events []json.RawMessage
	// Next is the token of the next page, or "" after the last event of a finished update.
	Next string
}

// expiredEvents returns the event that replaces an update's removed events.
func expiredEvents(u store.Update) json.RawMessage {
	return fmt.Appendf(nil, `{"sequence":0,"timestamp":%d,"stdoutEvent":{"color":"never","message":`+
		`"The events of this update have expired: the server keeps events for the time in its setting keep_logs_for.\n"}}`, u.FinishedAt.Unix())
}

// Events returns a page of an update's events. An empty token starts at the first event. The page
// ends before a gap, so that a reader who follows the tokens misses no event. If urn is not empty,
// the page contains only the events of that resource.
func (s *Service) Events(ctx context.Context, u store.Update, token, urn string) (EventPage, error) {
	from := int64(0)
	if token != "" {
		n, err := strconv.ParseInt(token, 10, 64)
		if err != nil || n < 0 {
			return EventPage{}, fault.Invalid("Invalid continuation token.")
		}
		from = n
	}
	if u.EventsExpired {
		return EventPage{Events: []json.RawMessage{expiredEvents(u)}}, nil
	}
	span, err := s.eventSpan(ctx, u.ID, from)
	if err != nil {
		return EventPage{}, fmt.Errorf("reading the events of an update: %w", err)
	}
	if urn == "" {
		return EventPage{span.events, span.token()}, nil
	}
	return s.eventsAbout(ctx, u.ID, span, urn)
}

// eventsAbout returns a page of a resource's events, from a span on.
func (s *Service) eventsAbout(ctx context.Context, id string, span eventSpan, urn string) (EventPage, error) {
	page := EventPage{Events: []json.RawMessage{}}
	for scanned, kept := int64(0), int64(0); ; {
		size := int64(0)
		for _, e := range span.events {
			if events.About(e, urn) {
				page.Events = append(page.Events, bytes.Clone(e)) // so that the span can be freed
				size += int64(len(e))
			}
		}
		budget.Of(ctx).Give(span.bytes - size)
		kept += size
		scanned += span.bytes
		if len(span.events) == 0 || span.end || kept >= eventBytes || scanned >= eventScan {
			page.Next = span.token()
			return page, nil
		}
		var err error
		if span, err = s.eventSpan(ctx, id, span.next); err != nil {
			return EventPage{}, fmt.Errorf("searching the events of an update: %w", err)
		}
	}
}

// eventSpan is a part of an update's events.
type eventSpan struct {
	events []json.RawMessage
	next   int64 // the sequence number after the last event
	bytes  int64 // memory of the events
	end    bool  // no events follow, and none will
}

func (e eventSpan) token() string {
	if e.end {
		return ""
	}
	return strconv.FormatInt(e.next, 10)
}

// eventSpan reads events from a sequence number on. It charges their memory to the request.
func (s *Service) eventSpan(ctx context.Context, id string, from int64) (eventSpan, error) {
	span, err := store.Read(ctx, s.db, func(tx *store.Tx) (eventSpan, error) { return measureSpan(tx, id, from) })
	if err != nil {
		return span, err
	}
	// A request must not wait for memory while it holds a database connection.
	if err := budget.Of(ctx).Take(ctx, span.bytes); err != nil {
		return span, err
	}
	batches, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.EventBatch, error) {
		return tx.EventBatches(id, from, span.next-1)
	})
	if err != nil {
		return span, err
	}
	span.events = []json.RawMessage{}
	for _, b := range batches {
		list, err := events.Unpack(b, from)
		if err != nil {
			return span, err
		}
		span.events = append(span.events, list...)
	}
	return span, nil
}

// measureSpan returns a span without its events.
func measureSpan(tx *store.Tx, id string, from int64) (span eventSpan, err error) {
	cur, err := tx.Update(id)
	if err != nil {
		return span, err
	}
	last, err := tx.LastSequence(id)
	if err != nil {
		return span, err
	}
	over := Status(cur.Status).Finished() &&
		(last < cur.NextSequence || tx.Now().Sub(cur.FinishedAt) > eventGrace)
	until := cur.NextSequence
	if over {
		until = last + 1
	}
	batches, err := tx.EventRanges(id, from, eventPage)
	if err != nil {
		return span, err
	}
	span.next = max(from, min(until, cur.NextSequence))
	count := int64(0)
	for i, b := range batches {
		count += b.Last - b.First + 1
		if b.Last >= until || i > 0 && (span.bytes+b.Bytes > eventBytes || count > eventPage) {
			break
		}
		span.next, span.bytes = b.Last+1, span.bytes+b.Bytes
	}
	span.end = over && span.next >= until
	return span, nil
}
