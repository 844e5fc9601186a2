// Package states stores the states of stacks. The stored form is a whole state, a difference from
// an earlier state, or the journal of an update. docs/adr/0012-state-storage.md explains the forms.
package states

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// Store stores and reads the states of stacks.
type Store struct {
	db       *store.DB
	log      *logrus.Entry
	memory   *budget.Budget
	journals journals
	finished chan string // keys of journals to fold; see [Store.Run]
	waiting  queue
	failed   failures
}

// New returns a store in a database. Background work reserves its memory in a budget, which can be
// nil.
func New(db *store.DB, log *logrus.Entry, memory *budget.Budget) *Store {
	return &Store{
		db: db, log: log, memory: memory,
		finished: make(chan string, foldQueue), waiting: queue{waiting: map[string][]string{}}, failed: failures{},
	}
}

// StackBlobs returns the prefix of the blob keys of a stack's states.
func StackBlobs(stackID string) string { return "stacks/" + stackID }

func newKey(stackID string) string { return StackBlobs(stackID) + "/" + identity.NewID() }

// Put stores a whole state under a new key. The caller either inserts the row in the transaction
// that refers to the key, or drops the state.
func (s *Store) Put(ctx context.Context, stackID string, st *State) (store.State, error) {
	r := io.NopCloser(bytes.NewReader(st.packed))
	if st.packed == nil {
		r = pack(func(w io.Writer) error {
			_, err := w.Write(st.body)
			return err
		})
	}
	row, err := s.write(ctx, newKey(stackID), r)
	if err != nil {
		return store.State{}, err
	}
	row.Key, row.StackID, row.Form, row.FullSize, row.CreatedAt = row.Blob, stackID, store.Full, row.Size, time.Now().UTC()
	return row, nil
}

// write stores a blob and closes its source. It returns a row with the blob's key, size and hash.
func (s *Store) write(ctx context.Context, key string, r io.ReadCloser) (store.State, error) {
	hash := sha256.New()
	size := new(counter)
	err := s.db.Blobs().Put(ctx, key, io.TeeReader(r, io.MultiWriter(hash, size)))
	r.Close()
	if err != nil {
		return store.State{}, fmt.Errorf("storing a state: %w", err)
	}
	return store.State{Blob: key, Size: int64(*size), SHA256: hash.Sum(nil)}, nil
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// pack returns the compressed form of the bytes that fill writes. fill runs in the background, and
// has finished when the reader's Close method returns.
func pack(fill func(io.Writer) error) io.ReadCloser {
	r, w := io.Pipe()
	p := packer{r, make(chan struct{})}
	go func() {
		defer close(p.done)
		w.CloseWithError(compress(w, fill))
	}()
	return p
}

type packer struct {
	*io.PipeReader
	done chan struct{}
}

func (p packer) Close() error {
	p.PipeReader.Close() //nolint:errcheck // it returns none
	<-p.done
	return nil
}

// compressors are reused, because each needs about 1 MiB and batches of entries are small.
var compressors sync.Pool

func newCompressor() (*gzip.Writer, error) {
	if z, ok := compressors.Get().(*gzip.Writer); ok {
		return z, nil
	}
	return gzip.NewWriterLevel(nil, gzip.BestSpeed)
}

func compress(w io.Writer, fill func(io.Writer) error) error {
	z, err := newCompressor()
	if err != nil {
		return fmt.Errorf("compressing a state: %w", err)
	}
	defer compressors.Put(z)
	z.Reset(w)
	if err := fill(z); err != nil {
		return fmt.Errorf("compressing a state: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("compressing a state: %w", err)
	}
	return nil
}

// Drop removes an unused blob. It does nothing if blob is "".
func (s *Store) Drop(ctx context.Context, blob string) {
	if blob == "" {
		return
	}
	if err := s.db.Blobs().Delete(context.WithoutCancel(ctx), blob); err != nil {
		s.log.WithError(err).Warn("removing an unused state failed")
	}
}

// Sweep removes unused states, and unused blobs that are older than age. It returns the number of
// removed blobs. A server that crashes before it writes a row leaves a blob. The retention leaves
// rows, which are needed as long as another state is based on them. Sweep uses at most a twentieth of
// a core.
func (s *Store) Sweep(ctx context.Context, age time.Duration) (int, error) {
	for {
		var keys []string
		err := retry.Paced(ctx, func() (err error) {
			keys, err = store.Read(ctx, s.db, func(tx *store.Tx) ([]string, error) { return tx.UnnamedStates(sweepPiece) })
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("searching unused states: %w", err)
		}
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			err := retry.Paced(ctx, func() error {
				return s.db.Write(ctx, func(tx *store.Tx) error { return tx.DeleteUnnamedState(key) })
			})
			if err != nil {
				return 0, fmt.Errorf("removing an unused state: %w", err)
			}
		}
	}
	began := time.Now()
	return s.db.Blobs().Sweep(ctx, "stacks", age, func(keys []string) ([]string, error) {
		// The time includes the listing of these blobs and the removal of earlier ones.
		if err := retry.Rest(ctx, began); err != nil {
			return nil, err
		}
		began = time.Now()
		return store.Read(ctx, s.db, func(tx *store.Tx) ([]string, error) { return tx.NamedStates(keys) })
	})
}
