package store

import (
	"fmt"

	"workflowagent/internal/server/store/database"
)

// EventBatch is a stored batch of an update's engine events, whose sequence numbers are
// consecutive. The batches of an update do not overlap.
type EventBatch struct {
	UpdateID string
	Last     int64 `db:"sequence"` // sequence number of the last event
	Events   int64 // number of events
	Size     int64 // size of the unpacked events in bytes
	Packed   []byte
	// Body is the only event, a JSON object, if an earlier version of the server stored the batch.
	// Otherwise, it is "".
	Body string
}

// EventRange is the range of a batch's sequence numbers.
type EventRange struct {
	First int64 `read:"sequence - events + 1"`
	Last  int64 `db:"sequence"`
	// Bytes is the memory that reading the batch needs.
	Bytes int64 `read:"size + octet_length(packed) + 2 * octet_length(body)"`
}

var (
	eventBatches = database.NewTable[EventBatch]("engine_events")
	eventRanges  = database.NewTable[EventRange]("engine_events")
)

// advanceBy bounds the number of batches that one call of [Tx.InsertEvents] or [Tx.AdvanceEvents]
// counts, and so the duration of the transaction.
const advanceBy = 1000

// InsertEvents adds batches that must not overlap stored ones. It returns the update's first
// missing sequence number. If more is true, the number is too low because more than advanceBy
// batches followed it; [Tx.AdvanceEvents] advances it further.
func (tx *Tx) InsertEvents(updateID string, batches []EventBatch) (next int64, more bool, err error) {
	for _, b := range batches {
		b.UpdateID = updateID
		if err := eventBatches.Insert(tx.Tx, b); err != nil {
			return 0, false, err
		}
	}
	return tx.AdvanceEvents(updateID)
}

// AdvanceEvents advances the update's first missing sequence number past the stored events. It
// reports whether more stored events might follow. It does not read events behind a gap.
func (tx *Tx) AdvanceEvents(updateID string) (next int64, more bool, err error) {
	from, err := database.Scalar[int64](tx.Tx, "SELECT next_sequence FROM updates WHERE id = $1", updateID)
	next, more = from, true
	for limit, counted := 1, 0; err == nil && more && counted < advanceBy; limit = min(4*limit, advanceBy) {
		var found []EventRange
		found, err = tx.EventRanges(updateID, next, limit)
		more = len(found) == limit
		for _, r := range found {
			if r.First > next {
				more = false
				break
			}
			next = r.Last + 1
		}
		counted += len(found)
	}
	if err != nil || next == from {
		return next, false, err
	}
	_, err = tx.Exec("UPDATE updates SET next_sequence = $2 WHERE id = $1 AND next_sequence < $2", updateID, next)
	return next, more, err
}

// EventRanges returns, in order, the ranges of up to limit batches that contain events with a
// sequence number of from or above.
func (tx *Tx) EventRanges(updateID string, from int64, limit int) ([]EventRange, error) {
	return eventRanges.All(tx.Tx, fmt.Sprintf("WHERE update_id = $1 AND sequence >= $2 ORDER BY sequence LIMIT %d", limit), updateID, from)
}

// EventBatches returns, in order, the batches of an update whose last event is in a range.
func (tx *Tx) EventBatches(updateID string, from, to int64) ([]EventBatch, error) {
	return eventBatches.All(tx.Tx, "WHERE update_id = $1 AND sequence >= $2 AND sequence <= $3 ORDER BY sequence", updateID, from, to)
}

// LastSequence returns the highest sequence number of an update's events, or -1 if it has no
// events.
func (tx *Tx) LastSequence(updateID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT COALESCE(MAX(sequence), -1) FROM engine_events WHERE update_id = $1", updateID)
}
