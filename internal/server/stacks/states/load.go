package states

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/journal"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/store"
)

// DamagedError reports that the stored form of a state differs from the form that was written.
type DamagedError struct{ err error }

// Error describes the damage.
func (e *DamagedError) Error() string { return "the stored state is damaged: " + e.err.Error() }

// Unwrap returns the underlying error.
func (e *DamagedError) Unwrap() error { return e.err }

func damaged(err error) error {
	if err == nil {
		return nil
	}
	return &DamagedError{err}
}

var errHash = errors.New("its SHA-256 differs from the recorded one")

// errFolded reports that a journal was folded after its row was read.
var errFolded = fmt.Errorf("the journal was folded: %w", store.ErrNotFound)

// openTries is the maximum number of attempts to read a state while it is being folded.
const openTries = 5

// Open returns the state with a key, or an empty state for the key "". It has closed its
// transaction when it returns, so that slow clients hold no database connections. It returns
// [store.ErrNotFound] if a newer checkpoint has replaced the state.
func (s *Store) Open(ctx context.Context, key string) (Stored, error) {
	if key == "" {
		return Stored{}, nil
	}
	for try := 1; ; try++ {
		out, err := s.open(ctx, key)
		if errors.Is(err, errFolded) && try < openTries {
			continue
		}
		return out, fault.While(err, "reading a state")
	}
}

func (s *Store) open(ctx context.Context, key string) (Stored, error) {
	chain, err := s.chain(ctx, key)
	if err != nil {
		return Stored{}, err
	}
	if chain[0].Form == store.Full {
		packed, err := s.blob(ctx, chain[0])
		return Stored{packed}, err
	}
	share := budget.Of(ctx)
	before := share.Held()
	doc, err := s.build(ctx, chain)
	held := share.Held() - before
	defer share.Give(held)
	if err != nil {
		return Stored{}, err
	}
	packed, err := packInMemory(ctx, doc)
	return Stored{packed}, err
}

func (s *Store) chain(ctx context.Context, key string) ([]store.State, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) ([]store.State, error) { return tx.StateChain(key) })
}

// packMemory is the memory that a compressor needs, in bytes.
const packMemory = 1 << 20

// packInMemory compresses a state, so that a slow client holds less memory.
func packInMemory(ctx context.Context, doc *journal.Deployment) ([]byte, error) {
	if err := budget.Of(ctx).Take(ctx, packMemory); err != nil {
		return nil, err
	}
	defer budget.Of(ctx).Give(packMemory)
	r := pack(document(doc))
	defer r.Close()
	return budget.ReadAll(ctx, r, -1, math.MaxInt64-1, false)
}

func document(doc *journal.Deployment) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := doc.WriteTo(w)
		return err
	}
}

// blob reads the blob of a state. It checks the hash of a full state, unless the state was stored
// by a version that recorded no hash.
func (s *Store) blob(ctx context.Context, row store.State) ([]byte, error) {
	size, err := s.db.Blobs().Size(ctx, row.Blob)
	if err != nil {
		return nil, err
	}
	r, err := s.db.Blobs().Get(ctx, row.Blob)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	packed, err := budget.ReadAll(ctx, r, size, math.MaxInt64-1, true)
	if err != nil {
		return nil, err
	}
	if row.Form == store.Full && len(row.SHA256) > 0 {
		if sum := sha256.Sum256(packed); !bytes.Equal(sum[:], row.SHA256) {
			return nil, damaged(errHash)
		}
	}
	return packed, nil
}

// build returns the first state of a chain. It checks the last recorded hash in the chain.
func (s *Store) build(ctx context.Context, chain []store.State) (*journal.Deployment, error) {
	doc, err := journal.ReadState(fmt.Appendf(nil, `{"version":%d,"deployment":null}`, emptySchema), nil)
	if err != nil {
		return nil, err
	}
	newest := slices.IndexFunc(chain, func(row store.State) bool { return row.Form != store.Journal })
	for i, row := range slices.Backward(chain) {
		if doc, err = s.step(ctx, doc, row); err != nil {
			return nil, err
		}
		if i == newest && row.Form == store.Delta && !bytes.Equal(hashOf(doc), row.SHA256) {
			return nil, damaged(errHash)
		}
	}
	return doc, nil
}

func hashOf(doc *journal.Deployment) []byte {
	hash := sha256.New()
	doc.WriteTo(hash) //nolint:errcheck // a hash accepts all bytes
	return hash.Sum(nil)
}

// hold returns a function that reserves memory for a request.
func hold(ctx context.Context) journal.Hold {
	share := budget.Of(ctx)
	return func(bytes int64) error {
		share.Give(-bytes)
		return share.Take(ctx, bytes)
	}
}

// step returns the state of a row that is based on parent.
func (s *Store) step(ctx context.Context, parent *journal.Deployment, row store.State) (*journal.Deployment, error) {
	if row.Form == store.Journal {
		doc, _, err := s.replay(ctx, parent, row)
		return doc, err
	}
	packed, err := s.blob(ctx, row)
	if err != nil {
		return nil, err
	}
	body, err := inflate(ctx, packed)
	if err != nil {
		return nil, err
	}
	budget.Of(ctx).Give(int64(cap(packed)))
	var doc *journal.Deployment
	if row.Form == store.Delta {
		doc, err = journal.Apply(parent, body, hold(ctx))
	} else {
		doc, err = journal.ReadState(body, hold(ctx))
	}
	if kind := fault.KindOf(err); kind == fault.KindInvalid || kind == "" && ctx.Err() == nil {
		err = damaged(err)
	}
	return doc, err
}

// replay returns the state after the entries of a journal. The time in the state's manifest is the
// time of the last batch, so that folding the journal does not change the state.
func (s *Store) replay(ctx context.Context, parent *journal.Deployment, row store.State) (*journal.Deployment, numbers, error) {
	var n numbers
	batches, err := s.batches(ctx, row.Key, 0)
	if err != nil {
		return nil, n, err
	}
	if len(batches) == 0 {
		return nil, n, errFolded
	}
	options := journal.Options{Time: batches[len(batches)-1].CreatedAt, PulumiVersion: row.PulumiVersion, Hold: hold(ctx)}
	if options.PulumiVersion == "" {
		options.PulumiVersion = text(rawjson.Member(parent.Member("manifest"), "version"))
	}
	doc, err := journal.Replay(parent, n.count(s.entries(ctx, batches)), options)
	if fault.KindOf(err) == fault.KindInvalid { // the entries were checked before they were stored
		err = damaged(err)
	}
	return doc, n, err
}

func (s *Store) batches(ctx context.Context, key string, after int64) ([]store.JournalBatch, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) ([]store.JournalBatch, error) { return tx.Batches(key, after) })
}

func (s *Store) entries(ctx context.Context, batches []store.JournalBatch) iter.Seq2[journal.Entry, error] {
	return func(yield func(journal.Entry, error) bool) {
		for _, b := range batches {
			if !s.yieldBatch(ctx, b, yield) {
				return
			}
		}
	}
}

// yieldBatch yields the entries of a batch, and then releases their memory.
func (s *Store) yieldBatch(ctx context.Context, b store.JournalBatch, yield func(journal.Entry, error) bool) bool {
	share := budget.Of(ctx)
	before := share.Held()
	entries, err := s.entriesOf(ctx, b)
	defer share.Give(share.Held() - before)
	if err != nil {
		return yield(journal.Entry{}, err)
	}
	for _, e := range entries {
		if !yield(e, nil) {
			return false
		}
	}
	return true
}

// perEntry is the memory overhead of a journal entry, in bytes.
const perEntry = 512

func (s *Store) entriesOf(ctx context.Context, b store.JournalBatch) ([]journal.Entry, error) {
	share := budget.Of(ctx)
	if err := share.Take(ctx, b.Stored+perEntry*b.Entries); err != nil {
		return nil, err
	}
	packed, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]byte, error) { return tx.BatchBody(b.StateKey, b.Number) })
	if err != nil {
		return nil, store.IfMissing(err, errFolded)
	}
	body, err := inflate(ctx, packed)
	if err != nil {
		return nil, err
	}
	share.Give(b.Stored)
	return journal.ReadEntries(body)
}

// text returns the value of a JSON string, or "".
func text(raw []byte) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}
