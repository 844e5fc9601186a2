package store

import (
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/server/store/database"
)

// Form is the stored form of a state.
type Form string

// The stored forms.
const (
	Full    Form = "full"    // the whole state, in a blob
	Delta   Form = "delta"   // the differences from the parent, in a blob
	Journal Form = "journal" // the changes that an update made to the parent, in batches
)

// State describes how a state is stored. States from before migration 90 have no row. Each of them
// is stored whole, in the blob whose key is the state's key.
type State struct {
	Key     string `db:"state_key"`
	StackID string
	Form    Form
	Parent  string // key of the state that this one is based on; "" for none
	// Blob is the key of the blob; "" for a journal. If a journal was folded, the key of the blob
	// differs from the key of the state.
	Blob string `db:"blob_key"`
	// SHA256 is the hash of a full state's blob, or of the document that results from a delta.
	SHA256        []byte `db:"sha256"`
	Size          int64  // bytes of the blob
	Depth         int64  // number of deltas from the full state to this one
	DeltaSize     int64  // bytes of these deltas
	FullSize      int64  // bytes of the full state
	BaseResources int64  // for a journal, the number of resources of the parent
	PulumiVersion string // for a journal, the version of the client; "" if unknown
	CreatedAt     time.Time
	OrgID         string `db:"-" read:"(SELECT k.org_id FROM stack_owners k WHERE k.id = states.stack_id)"` // of the stack
}

var states = database.NewTable[State]("states")

// InsertState adds a state.
func (tx *Tx) InsertState(s State) error { return states.Insert(tx.Tx, s) }

// State returns a state by its key. A state without a row is a full one.
func (tx *Tx) State(key string) (State, error) {
	found, err := states.All(tx.Tx, "WHERE state_key = $1", key)
	switch {
	case err != nil:
		return State{}, err
	case len(found) == 0:
		return State{Key: key, Form: Full, Blob: key}, nil
	}
	return found[0], nil
}

// StateChain returns a state followed by the states on which it is based, up to a full one.
func (tx *Tx) StateChain(key string) ([]State, error) {
	var chain []State
	for key != "" {
		s, err := tx.State(key)
		if err != nil {
			return nil, err
		}
		chain = append(chain, s)
		if key = s.Parent; s.Form == Full {
			break
		}
	}
	return chain, nil
}

// FoldState replaces a journal that has the given number of batches with another form of the same
// state, and removes the batches. It returns [ErrNotFound] if the journal is longer, has been
// folded or is in use by a running update.
func (tx *Tx) FoldState(s State, batches int64) error {
	last, err := tx.LastBatch(s.Key)
	if err != nil {
		return err
	}
	running, err := database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM updates WHERE state_blob = $1 AND state_blob <> '' AND status = 'running'", s.Key)
	if err != nil {
		return err
	}
	if last != batches || batches == 0 || running > 0 {
		return ErrNotFound
	}
	if err := states.Update(tx.Tx, s); err != nil {
		return err
	}
	_, err = tx.Exec("DELETE FROM journal_batches WHERE state_key = $1", s.Key)
	return err
}

// CountState records a state's schema version and number of resources in all rows that refer to the
// state.
func (tx *Tx) CountState(key string, schema, resources int64) error {
	if err := tx.recordResources("state_blob", key, resources); err != nil {
		return err
	}
	for _, table := range []string{"updates", "stacks"} {
		_, err := tx.Exec("UPDATE "+table+" SET state_schema = $2, resource_count = $3 WHERE state_blob = $1 AND state_blob <> ''", key, schema, resources)
		if err != nil {
			return err
		}
	}
	return nil
}

// DeleteState removes a state on which no other state is based. The caller removes the state's
// blob.
func (tx *Tx) DeleteState(key string) error {
	_, err := tx.Exec("DELETE FROM states WHERE state_key = $1", key)
	return err
}

// OwnedState is the key of a state, with the stack and the organization that own it.
type OwnedState struct {
	Key     string `db:"state_key"`
	StackID string
	OrgID   string `read:"k.org_id"`
}

var ownedStates = database.NewTable[OwnedState]("states s JOIN stack_owners k ON k.id = s.stack_id")

// JournalByKey returns at most one journal.
func (tx *Tx) JournalByKey(key string) ([]OwnedState, error) {
	return ownedStates.All(tx.Tx, "WHERE s.state_key = $1 AND s.form = 'journal'", key)
}

// FinishedJournals returns, in the order of their keys, the journals that follow a key and whose
// updates finished before a time.
func (tx *Tx) FinishedJournals(after string, before time.Time, limit int) ([]OwnedState, error) {
	return ownedStates.All(tx.Tx, `WHERE s.form = 'journal' AND s.state_key > $2 AND NOT EXISTS (
		SELECT 1 FROM updates u WHERE u.state_blob = s.state_key AND u.state_blob <> '' AND (u.status = 'running' OR u.finished_at >= $1))
		ORDER BY s.state_key`+fmt.Sprintf(" LIMIT %d", limit), before, after)
}

// stateUnnamed is the condition that no stack or update refers to a state s, and that no other
// state is based on it. The queries use partial indexes.
const stateUnnamed = `NOT EXISTS (SELECT 1 FROM stacks n WHERE n.state_blob = s.state_key AND n.state_blob <> '')
	AND NOT EXISTS (SELECT 1 FROM updates u WHERE u.state_blob = s.state_key AND u.state_blob <> '')
	AND NOT EXISTS (SELECT 1 FROM states c WHERE c.parent = s.state_key AND c.parent <> '')`

// UnnamedStates returns unused states.
func (tx *Tx) UnnamedStates(limit int) ([]OwnedState, error) {
	return ownedStates.All(tx.Tx, "WHERE "+stateUnnamed+fmt.Sprintf(" LIMIT %d", limit))
}

// DeleteUnnamedState removes a state if it is unused.
func (tx *Tx) DeleteUnnamedState(key string) error {
	_, err := tx.Exec("DELETE FROM states WHERE state_key IN (SELECT s.state_key FROM states s WHERE s.state_key = $1 AND "+stateUnnamed+")", key)
	return err
}

// NamedStates returns those of the given blob keys that are in use.
func (tx *Tx) NamedStates(keys []string) ([]string, error) {
	marks, args := make([]string, len(keys)), make([]any, len(keys))
	for i, key := range keys {
		marks[i], args[i] = fmt.Sprintf("$%d", i+1), key
	}
	list := strings.Join(marks, ", ")
	var selects []string
	// A parent without a row is a blob whose key is the state's key.
	for _, column := range [][2]string{{"stacks", "state_blob"}, {"updates", "state_blob"}, {"states", "blob_key"}, {"states", "parent"}} {
		selects = append(selects, "SELECT "+column[1]+" FROM "+column[0]+" WHERE "+column[1]+" IN ("+list+") AND "+column[1]+" <> ''")
	}
	return database.Scalars[string](tx.Tx, strings.Join(selects, " UNION "), args...)
}

// JournalBatch is a list of journal entries that were stored together.
type JournalBatch struct {
	StateKey  string
	Number    int64  // from 1, without gaps
	Body      []byte `read:"''"` // gzip-compressed JSON array; see [Tx.BatchBody]
	Size      int64  // bytes of the JSON array
	Entries   int64
	CreatedAt time.Time
	Stored    int64 `db:"-" read:"octet_length(body)"` // bytes of the body
}

var batches = database.NewTable[JournalBatch]("journal_batches")

// InsertBatch adds a batch.
func (tx *Tx) InsertBatch(b JournalBatch) error { return batches.Insert(tx.Tx, b) }

// LastBatch returns the number of a journal's last batch, or 0 if it has none.
func (tx *Tx) LastBatch(key string) (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT COALESCE(MAX(number), 0) FROM journal_batches WHERE state_key = $1", key)
}

// Batches returns, in order and without their bodies, the batches of a journal that follow a
// number.
func (tx *Tx) Batches(key string, after int64) ([]JournalBatch, error) {
	return batches.All(tx.Tx, "WHERE state_key = $1 AND number > $2 ORDER BY number", key, after)
}

// BatchBody returns the body of a batch.
func (tx *Tx) BatchBody(key string, number int64) ([]byte, error) {
	return database.Scalar[[]byte](tx.Tx, "SELECT body FROM journal_batches WHERE state_key = $1 AND number = $2", key, number)
}
