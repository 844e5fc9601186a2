package stacks

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/mask"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/store"
)

// eventGrace is the time for which readers wait for missing events after an update has finished.
// Clients send batches in parallel and drop failed batches.
const eventGrace = 5 * time.Second

// eventPage and eventBytes bound the events of one response. A response contains at least one
// event, even one longer than eventBytes.
const (
	eventPage  = 1000
	eventBytes = 1 << 20
)

// pageEnd returns the sequence number after a page's last event, and the page's size in bytes.
func pageEnd(sizes []store.EventSize) (end, bytes int64) {
	for i, e := range sizes {
		if i > 0 && bytes+e.Bytes > eventBytes {
			break
		}
		end, bytes = e.Sequence+1, bytes+e.Bytes
	}
	return end, bytes
}

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
		return fault.Invalid("Bad Request: No events provided.")
	case len(raw) > maxEvents:
		return fault.New(fault.KindTooLarge, "Request Entity Too Large: %d events at a time are too many; send at most %d", len(raw), maxEvents)
	}
	secrets, err := s.knownSecrets(ctx, u)
	if err != nil {
		return err
	}
	events := make([]store.EngineEvent, 0, len(raw))
	changes := ""
	for _, r := range raw {
		seq, err := strconv.ParseInt(string(rawjson.Member(r, "sequence")), 10, 64)
		if err != nil || seq < 0 {
			return fault.Invalid("Bad Request: every event must have a non-negative integer member \"sequence\"")
		}
		body, err := mask.Event(secrets, r)
		if err != nil {
			return err
		}
		events = append(events, store.EngineEvent{Sequence: seq, Body: string(body)})
		if sum := rawjson.Member(r, "summaryEvent"); sum != nil {
			changes = summaryChanges(sum)
		}
	}
	// Events are sorted, so only the first can exceed the gap limit.
	slices.SortStableFunc(events, func(a, b store.EngineEvent) int { return cmp.Compare(a.Sequence, b.Sequence) })
	for i, e := range events[1:] {
		if e.Sequence-events[i].Sequence > maxEventGap {
			return errEventGap
		}
	}
	for len(events) > 0 {
		n := pieceOf(events)
		if err := s.writeEvents(ctx, u.ID, events[:n], changes); err != nil {
			return err
		}
		events = events[n:]
	}
	return s.advanceEvents(ctx, u.ID)
}

var errEventGap = fault.Invalid("Bad Request: an event's sequence number exceeds the update's previous events by more than %d", maxEventGap)

func pieceOf(events []store.EngineEvent) int {
	n, size := 0, 0
	for n < len(events) && n < eventsPerWrite && (n == 0 || size+len(events[n].Body) <= eventBytesPerWrite) {
		size += len(events[n].Body)
		n++
	}
	return n
}

func (s *Service) writeEvents(ctx context.Context, id string, events []store.EngineEvent, changes string) error {
	return s.db.Write(ctx, func(tx *store.Tx) error {
		now, err := tx.LeaseTime()
		if err != nil {
			return err
		}
		cur, err := tx.Update(id)
		if err != nil {
			return err
		}
		// The last batch can arrive after the update has finished.
		if Status(cur.Status) == NotStarted {
			return fault.Conflict("Conflict: The Update has not started")
		}
		if Status(cur.Status) == Running && expired(cur, now) || cur.Reason == reasonExpired {
			return errLeaseLost
		}
		last, err := tx.LastSequence(id)
		if err != nil {
			return err
		}
		if events[0].Sequence-maxEventGap > last { // last is -1 before the first event
			return errEventGap
		}
		if _, err := tx.InsertEvents(id, events); err != nil {
			return err
		}
		if changes == "" || changes == cur.ResourceChanges {
			return nil
		}
		cur.ResourceChanges = changes
		return tx.SaveUpdate(cur)
	})
}

// advanceEvents advances the update's sequence number past stored events, in several transactions.
func (s *Service) advanceEvents(ctx context.Context, id string) error {
	for more := true; more; {
		err := s.db.Read(ctx, func(tx *store.Tx) error {
			cur, err := tx.Update(id)
			if err != nil {
				return err
			}
			there, err := tx.EventSizes(id, cur.NextSequence, cur.NextSequence+1, 1)
			more = len(there) > 0
			return err
		})
		if err != nil {
			return err
		}
		if !more {
			return nil
		}
		if err := s.db.Write(ctx, func(tx *store.Tx) error {
			_, more, err = tx.AdvanceEvents(id)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
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

// expiredEvents returns the event that replaces an update's removed events.
func expiredEvents(u store.Update) json.RawMessage {
	return fmt.Appendf(nil, `{"sequence":0,"timestamp":%d,"stdoutEvent":{"color":"never","message":`+
		`"The events of this update have expired: the server keeps events for the time in its setting keep_logs_for.\n"}}`, u.FinishedAt.Unix())
}

// EventPage is a page of an update's events.
type EventPage struct {
	Events []json.RawMessage
	// Next is the token of the next page, or "" after the last event of a finished update.
	Next string
}

// Events returns a page of an update's events. An empty token starts at the first event. The page
// ends before a gap, so that a reader who follows the tokens misses no event.
func (s *Service) Events(ctx context.Context, u store.Update, token string) (EventPage, error) {
	from := int64(0)
	if token != "" {
		n, err := strconv.ParseInt(token, 10, 64)
		if err != nil || n < 0 {
			return EventPage{}, fault.Invalid("Bad Request: Invalid continuation token.")
		}
		from = n
	}
	if u.EventsExpired {
		return EventPage{Events: []json.RawMessage{expiredEvents(u)}}, nil
	}
	var until, next, end, bytes int64
	var over bool
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		cur, err := tx.Update(u.ID)
		if err != nil {
			return err
		}
		last, err := tx.LastSequence(u.ID)
		if err != nil {
			return err
		}
		until = cur.NextSequence
		over = Status(cur.Status).Finished() &&
			(last < cur.NextSequence || tx.Now().Sub(cur.FinishedAt) > eventGrace)
		if over {
			until = last + 1
		}
		sizes, err := tx.EventSizes(u.ID, from, until, eventPage)
		if err != nil {
			return err
		}
		end, bytes = pageEnd(sizes)
		next = max(from, min(until, cur.NextSequence))
		return nil
	})
	if err != nil {
		return EventPage{}, fmt.Errorf("reading the events of an update: %w", err)
	}
	// A request must not wait for memory while it holds a database connection.
	if err := budget.Of(ctx).Take(ctx, 2*bytes); err != nil {
		return EventPage{}, err
	}
	events, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.EngineEvent, error) {
		return tx.Events(u.ID, from, end)
	})
	if err != nil {
		return EventPage{}, fmt.Errorf("reading the events of an update: %w", err)
	}
	page := EventPage{Events: make([]json.RawMessage, 0, len(events))}
	for _, e := range events {
		page.Events = append(page.Events, json.RawMessage(e.Body))
		next = e.Sequence + 1
	}
	if !over || next < until {
		page.Next = strconv.FormatInt(next, 10)
	}
	return page, nil
}
