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
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/lru"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Store stores and reads the states of stacks.
type Store struct {
	db       *store.DB
	log      *logrus.Entry
	memory   *budget.Budget
	journals *lru.Cache[progress] // by the id of the update
	finished chan string          // keys of journals to fold; see [Store.Run]
	waiting  queue
	failed   failures
}

// New returns a store in a database. Background work reserves its memory in a budget, which can be
// nil.
func New(db *store.DB, log *logrus.Entry, memory *budget.Budget) *Store {
	return &Store{
		db: db, log: log, memory: memory, journals: lru.New[progress](maxEntries/emptySize, maxEntries),
		finished: make(chan string, foldQueue), waiting: queue{waiting: map[string][]string{}}, failed: failures{},
	}
}

// StackBlobs returns the prefix of the blob keys of a stack's states.
func StackBlobs(stackID string) string { return "stacks/" + stackID }

func newKey(stackID string) string { return StackBlobs(stackID) + "/" + identity.NewID() }

// nameWithin is the age up to which a blob may be named. The sweep removes unnamed blobs that are
// older than several hours, and a server can stand still for a night between writing a blob and naming it.
const nameWithin = time.Hour

// Put is a state whose blob is stored and whose row is not.
type Put struct {
	store.State
	written time.Time // before the blob was written, by the clock of the database
}

// Insert adds the row of a state.
func (p Put) Insert(tx *store.Tx) error {
	if err := p.check(tx); err != nil {
		return err
	}
	return tx.InsertState(p.State)
}

// check returns an error if the sweep can have removed the blob.
func (p Put) check(tx *store.Tx) error {
	if tx.Now().Sub(p.written) < nameWithin {
		return nil
	}
	return fault.New(fault.KindUnavailable, "the server stood still after it had received the state; send the state again")
}

// Put stores a whole state under a new key. The caller either inserts the row in the transaction that
// refers to the key, or calls [Store.Discard].
func (s *Store) Put(ctx context.Context, stackID string, st *State) (Put, error) {
	r := io.NopCloser(bytes.NewReader(st.packed))
	if st.packed == nil {
		r = pack(func(w io.Writer) error {
			_, err := w.Write(st.body)
			return err
		})
	}
	p, err := s.write(ctx, newKey(stackID), r)
	if err != nil {
		return Put{}, err
	}
	p.Key, p.StackID, p.Form, p.FullSize, p.CreatedAt = p.Blob, stackID, store.Full, p.Size, time.Now().UTC()
	return p, nil
}

// write stores a blob and closes its source. It returns a row with the blob's key, size and hash.
func (s *Store) write(ctx context.Context, key string, r io.ReadCloser) (Put, error) {
	defer r.Close()
	written, err := s.db.Now(ctx)
	if err != nil {
		return Put{}, err
	}
	hash := sha256.New()
	size := new(counter)
	if err := s.db.Blobs().Put(ctx, key, io.TeeReader(r, io.MultiWriter(hash, size))); err != nil {
		return Put{}, fmt.Errorf("storing a state: %w", err)
	}
	return Put{store.State{Blob: key, Size: int64(*size), SHA256: hash.Sum(nil)}, written}, nil
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
	return fault.While(z.Close(), "compressing a state")
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

// Discard removes the blob of a state whose row was not written because of err. The row may exist after
// an unknown outcome. The sweep, which asks the database, then removes the blob if it is unused.
func (s *Store) Discard(ctx context.Context, blob string, err error) {
	if fault.KindOf(err) != fault.KindOutcomeUnknown {
		s.Drop(ctx, blob)
	}
}

// Sweep removes unused states, and unused blobs that are older than age. It returns the number of
// removed blobs. A server that crashes before it writes a row leaves a blob. The retention leaves
// rows, which are needed as long as another state is based on them. Sweep uses at most a twentieth of
// a core.
func (s *Store) Sweep(ctx context.Context, age time.Duration) (int, error) {
	for {
		var unnamed []store.OwnedState
		err := retry.Paced(ctx, func() (err error) {
			unnamed, err = store.Read(ctx, s.db, func(tx *store.Tx) ([]store.OwnedState, error) { return tx.UnnamedStates(sweepPiece) })
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("searching unused states: %w", err)
		}
		if len(unnamed) == 0 {
			break
		}
		for _, st := range unnamed {
			err := retry.Paced(ctx, func() error {
				return s.db.Write(ctx, scope.Stack(st.OrgID, st.StackID).Remaining(), func(tx *store.Tx) error { return tx.DeleteUnnamedState(st.Key) })
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
