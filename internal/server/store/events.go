package store

import "fmt"

// EngineEvent is an event of an update's engine, as the client sent it.
type EngineEvent struct {
	Sequence int64
	Body     string // JSON object
}

// advanceBy bounds the events that one call of [Tx.InsertEvents] or [Tx.AdvanceEvents] counts, and
// so the time it holds the database.
const advanceBy = 1000

// InsertEvents adds events, keeping existing ones, and returns the update's first missing sequence
// number. That number is too low if more than advanceBy events waited for a missing one; call
// [Tx.AdvanceEvents] to continue.
func (tx *Tx) InsertEvents(updateID string, events []EngineEvent) (int64, error) {
	for _, e := range events {
		_, err := tx.exec(`INSERT INTO engine_events (update_id, sequence, body) VALUES ($1, $2, $3)
			ON CONFLICT (update_id, sequence) DO NOTHING`, updateID, e.Sequence, e.Body)
		if err != nil {
			return 0, err
		}
	}
	next, _, err := tx.AdvanceEvents(updateID)
	return next, err
}

// AdvanceEvents moves the update's first missing sequence number past the stored events and reports
// whether more may follow. It does not read events behind a gap.
func (tx *Tx) AdvanceEvents(updateID string) (next int64, more bool, err error) {
	if err := tx.queryOne("SELECT next_sequence FROM updates WHERE id = $1", []any{updateID}, &next); err != nil {
		return 0, false, err
	}
	from := next
	for piece := 1; next-from < advanceBy; {
		gap, err := tx.followEvents(updateID, &next, piece)
		if err != nil {
			return 0, false, err
		}
		if gap {
			break
		}
		piece = min(4*piece, advanceBy) // behind a gap there may be many
		more = next-from >= advanceBy
	}
	if next == from {
		return next, false, nil
	}
	_, err = tx.exec("UPDATE updates SET next_sequence = $2 WHERE id = $1 AND next_sequence < $2", updateID, next)
	return next, more, err
}

// followEvents advances next over at most limit events; gap reports a gap or the end.
func (tx *Tx) followEvents(updateID string, next *int64, limit int) (gap bool, err error) {
	found := 0
	err = tx.queryEach(fmt.Sprintf("SELECT sequence FROM engine_events WHERE update_id = $1 AND sequence >= $2 ORDER BY sequence LIMIT %d", limit),
		[]any{updateID, *next}, func(scan scanFunc) error {
			var seq int64
			if err := scan(&seq); err != nil {
				return err
			}
			if seq == *next {
				*next++
				found++
			}
			return nil
		})
	return found < limit, err
}

// EventSize is the length of an event.
type EventSize struct{ Sequence, Bytes int64 }

// EventSizes returns, in order, the sizes of up to limit events with from <= sequence < to.
func (tx *Tx) EventSizes(updateID string, from, to int64, limit int) ([]EventSize, error) {
	return collect(tx, func(scan scanFunc) (EventSize, error) {
		var e EventSize
		err := scan(&e.Sequence, &e.Bytes)
		return e, err
	}, `SELECT sequence, octet_length(body) FROM engine_events
		WHERE update_id = $1 AND sequence >= $2 AND sequence < $3 ORDER BY sequence`+fmt.Sprintf(" LIMIT %d", limit), updateID, from, to)
}

// Events returns, in order, the events of an update with from <= sequence < to.
func (tx *Tx) Events(updateID string, from, to int64) ([]EngineEvent, error) {
	query := `SELECT sequence, body FROM engine_events
		WHERE update_id = $1 AND sequence >= $2 AND sequence < $3 ORDER BY sequence`
	return collect(tx, func(scan scanFunc) (EngineEvent, error) {
		var e EngineEvent
		err := scan(&e.Sequence, &e.Body)
		return e, err
	}, query, updateID, from, to)
}

// LastSequence returns the highest sequence number of an update's events, -1 without events.
func (tx *Tx) LastSequence(updateID string) (int64, error) {
	var n int64
	err := tx.queryOne("SELECT COALESCE(MAX(sequence), -1) FROM engine_events WHERE update_id = $1", []any{updateID}, &n)
	return n, err
}

// DeleteUpdates removes at most limit events and updates of a stack; done reports that none remain.
func (tx *Tx) DeleteUpdates(stackID string, limit int) (done bool, err error) {
	n, err := tx.exec(fmt.Sprintf(`DELETE FROM engine_events WHERE (update_id, sequence) IN (
		SELECT e.update_id, e.sequence FROM updates u JOIN engine_events e ON e.update_id = u.id
		WHERE u.stack_id = $1 LIMIT %d)`, limit), stackID)
	if err != nil || n >= int64(limit) {
		return false, err
	}
	n, err = tx.exec(fmt.Sprintf("DELETE FROM updates WHERE id IN (SELECT id FROM updates WHERE stack_id = $1 LIMIT %d)", limit), stackID)
	return n < int64(limit), err
}
