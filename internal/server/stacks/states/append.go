package states

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"time"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/journal"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Permit returns, inside a transaction, an update that may store a state.
type Permit func(tx *store.Tx) (store.Update, error)

// errBehind reports that another request has stored a batch since the journal was read.
var errBehind = fault.New(fault.KindUnavailable, "another request is writing the journal of this update; retry later")

// appendTries is the maximum number of attempts to append to a journal to which other servers
// write.
const appendTries = 5

// Append adds all entries to an update's journal, or none. It ignores entries that the journal
// already contains. The first entries of an update create its journal, which becomes the stack's
// state.
func (s *Store) Append(ctx context.Context, u store.Update, entries []journal.Entry, permit Permit) error {
	var err error
	for range appendTries {
		if err = s.append(ctx, u, entries, permit); !errors.Is(err, errBehind) {
			break
		}
	}
	return err
}

func (s *Store) append(ctx context.Context, u store.Update, entries []journal.Entry, permit Permit) error {
	p := s.journals.Get(u.ID)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { s.journals.Resize(u.ID, p, p.size()) }()
	// Without other servers, only this progress adds batches.
	if p.references == nil || s.db.Shared() {
		if err := s.catchUp(ctx, u.ID, p); err != nil {
			p.reset()
			return err
		}
	}
	added, err := p.add(entries)
	if err != nil {
		return err
	}
	if err := s.checkMigrations(ctx, u, added); err != nil {
		p.reset()
		return err
	}
	b, err := batchOf(added)
	if err != nil {
		p.reset()
		return err
	}
	b.Number = p.batches + 1
	err = s.db.Write(ctx, scope.Stack(u.OrgID, u.StackID), func(tx *store.Tx) error {
		u, err := permit(tx)
		if err != nil || len(added) == 0 {
			return err
		}
		return insertBatch(tx, u, b, int64(p.references.Resources()))
	})
	if err != nil || len(added) == 0 {
		if err != nil {
			p.reset() // it might contain entries that are not stored
		}
		return err
	}
	p.batches++
	return nil
}

// batchOf returns the stored form of entries.
func batchOf(entries []journal.Entry) (store.JournalBatch, error) {
	b := store.JournalBatch{Entries: int64(len(entries)), Size: 2}
	var body bytes.Buffer
	err := compress(&body, func(w io.Writer) error {
		separator := "["
		for _, e := range entries {
			for _, part := range [][]byte{[]byte(separator), e.Raw} {
				if _, err := w.Write(part); err != nil {
					return err
				}
			}
			separator = ","
			b.Size += int64(len(e.Raw)) + 1
		}
		_, err := io.WriteString(w, "]")
		return err
	})
	b.Body = body.Bytes()
	return b, err
}

func insertBatch(tx *store.Tx, u store.Update, b store.JournalBatch, resources int64) error {
	b.CreatedAt = tx.Now()
	if b.Number == 1 {
		if err := insertJournal(tx, &u, b.CreatedAt); err != nil {
			return err
		}
	}
	switch last, err := tx.LastBatch(u.StateBlob); {
	case err != nil:
		return err
	case last != b.Number-1:
		return errBehind
	}
	b.StateKey = u.StateBlob
	if err := tx.InsertBatch(b); err != nil {
		return err
	}
	if u.ResourceCount == resources {
		return nil
	}
	return tx.CountState(u.StateBlob, u.StateSchema, resources)
}

// insertJournal makes an empty journal the state of an update and of its stack.
func insertJournal(tx *store.Tx, u *store.Update, now time.Time) error {
	if u.StateBlob != "" {
		row, err := tx.State(u.StateBlob)
		if err == nil && row.Form != store.Journal {
			err = fault.Conflict("the update has sent a checkpoint; it cannot send a journal, too")
		}
		return err
	}
	st, err := tx.Stack(u.StackID)
	if err != nil {
		return err
	}
	program, err := tx.Program(u.ID)
	if err != nil {
		return err
	}
	row := store.State{
		Key: newKey(st.ID), StackID: st.ID, Form: store.Journal, Parent: st.StateBlob, BaseResources: u.ResourceCount,
		PulumiVersion: clientVersion(program), CreatedAt: now,
	}
	if err := tx.InsertState(row); err != nil {
		return err
	}
	u.StateBlob, st.StateBlob = row.Key, row.Key
	if err := tx.StoreUpdateState(*u); err != nil {
		return err
	}
	return tx.UpdateStack(st)
}

// clientVersion returns the pulumi version in the request that created an update, or "".
func clientVersion(program string) string {
	environment := rawjson.Member(rawjson.Member([]byte(program), "metadata"), "environment")
	version := text(rawjson.Member(environment, "pulumi.version"))
	if len(version) > 100 || strings.ContainsRune(version, 0) { // PostgreSQL rejects NUL
		return ""
	}
	return version
}

// progress is this server's knowledge of a running update's journal.
type progress struct {
	mu         sync.Mutex
	batches    int64             // number of batches it covers
	entries    map[int64]hash    // by sequence id
	references *journal.Progress // nil before the first entry is read
}

// Bounds of the progresses that a server keeps, as numbers of entries. An entry needs about 150 bytes. A
// server that has dropped a progress reads the journal again.
const (
	maxEntries = 1 << 20
	// maxJournal is the bound of one journal, so that it leaves room for others. The CLI sends two or
	// three entries per resource.
	maxJournal = maxEntries / 2
	emptySize  = 50 // of a progress without entries
)

// size returns the size of a progress, as a number of entries.
func (p *progress) size() int { return emptySize + len(p.entries) }

type hash [16]byte

func hashOfEntry(e journal.Entry) hash {
	sum := sha256.Sum256(e.Raw)
	return hash(sum[:])
}

func (p *progress) reset() { p.batches, p.entries, p.references = 0, nil, nil }

// add adds and returns the new entries. After an error, p is unchanged.
func (p *progress) add(entries []journal.Entry) ([]journal.Entry, error) {
	var added []journal.Entry
	hashes := map[int64]hash{}
	for _, e := range entries {
		h := hashOfEntry(e)
		known, ok := p.entries[e.SequenceID]
		if !ok {
			known, ok = hashes[e.SequenceID]
		}
		switch {
		case !ok:
			added, hashes[e.SequenceID] = append(added, e), h
		case known != h:
			return nil, fault.Conflict("the journal contains another entry with sequence id %d; an entry cannot change", e.SequenceID)
		}
	}
	if len(p.entries)+len(added) > maxJournal {
		return nil, fault.Invalid("the journal has more than %d entries; disable the journal with PULUMI_DISABLE_JOURNALING=true", maxJournal)
	}
	if err := p.references.AddAll(added); err != nil {
		return nil, err
	}
	maps.Copy(p.entries, hashes)
	return added, nil
}

// catchUp reads the stored batches that p does not cover yet.
func (s *Store) catchUp(ctx context.Context, updateID string, p *progress) error {
	var u store.Update
	var row store.State
	var batches []store.JournalBatch
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if u, err = tx.Update(updateID); err != nil || u.StateBlob == "" {
			return err
		}
		if row, err = tx.State(u.StateBlob); err != nil {
			return err
		}
		batches, err = tx.Batches(u.StateBlob, p.batches)
		return err
	})
	if err != nil {
		return fmt.Errorf("reading a journal: %w", err)
	}
	base := u.ResourceCount
	if u.StateBlob != "" {
		base = row.BaseResources
	}
	if p.references == nil {
		p.references, p.entries = journal.NewProgress(int(base)), map[int64]hash{}
	}
	for _, b := range batches {
		if err := s.addBatch(ctx, p, b); err != nil {
			return fmt.Errorf("reading a journal: %w", err)
		}
	}
	return nil
}

func (s *Store) addBatch(ctx context.Context, p *progress, b store.JournalBatch) error {
	share := budget.Of(ctx)
	before := share.Held()
	defer func() { share.Give(share.Held() - before) }()
	entries, err := s.entriesOf(ctx, b)
	if err != nil {
		return err
	}
	if _, err := p.add(entries); err != nil {
		return damaged(err)
	}
	p.batches = b.Number
	return nil
}
