// Package keyring encrypts stack secrets with keys stored in the database, wrapped by a master key.
package keyring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

const (
	// Name is the name of the installation's value that contains the wrapped keys.
	Name = "secrets-key-ring"
	// nextRingName is the same ring, wrapped by the master key that replaces the current one, after the digest of the
	// value called Name.
	nextRingName = "secrets-key-ring-next"
)

// Ring encrypts stack secrets. The database stores the ring's keys, so that servers share the ring.
// The keys are wrapped by a master key outside the database, so that a copy of the database alone
// reveals no secrets. Each ciphertext is bound to a scope, such as its stack's id, and cannot be
// decrypted for another one.
type Ring struct {
	db        *store.DB
	masterKey []byte
	master    tink.AEAD

	mu        sync.RWMutex
	ring      tink.AEAD
	primary   uint32 // id of the key with which ring encrypts
	lost      bool   // the database does not contain that key
	successor []byte // at the last check, the same ring wrapped by the master key that was to replace the current one
}

// ErrMasterKey means that a master key does not unwrap the key ring of a database.
var ErrMasterKey = errors.New("unwrapping the database's key ring failed: use the master key with which the database was created, or if it is lost, see workflow-server secrets discard --help")

// Exists reports whether a database has a key ring, which needs its master key.
func Exists(ctx context.Context, db *store.DB) (bool, error) {
	stored, err := store.Read(ctx, db, ReadStored)
	return len(stored) > 0, err
}

// Open unwraps a database's key ring with a 32-byte master key. It creates the ring if necessary.
func Open(ctx context.Context, db *store.DB, masterKey []byte) (*Ring, error) {
	master, err := newMaster(masterKey)
	if err != nil {
		return nil, err
	}
	s := &Ring{db: db, masterKey: masterKey, master: master}
	// Only the first start writes: a write with the scope of the server waits for those of all servers, and
	// a server can start because another one has stopped during a write.
	if err := s.load(ctx); !errors.Is(err, store.ErrNotFound) {
		return s, err
	}
	fresh, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("creating a secrets key: %w", err)
	}
	wrapped, err := s.wrap(fresh)
	if err != nil {
		return nil, err
	}
	err = db.Write(ctx, scope.Server(), func(tx *store.Tx) error { return tx.AddInstallation(Name, wrapped) })
	if err != nil {
		return nil, fmt.Errorf("storing the key ring: %w", err)
	}
	return s, s.load(ctx)
}

func (s *Ring) load(ctx context.Context) error { return s.db.Read(ctx, s.loadIn) }

func (s *Ring) loadIn(tx *store.Tx) error {
	_, h, err := s.find(tx)
	if err != nil {
		return err
	}
	ring, err := aead.New(h)
	if err != nil {
		return fmt.Errorf("preparing the key ring: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ring, s.primary = ring, h.KeysetInfo().GetPrimaryKeyId()
	return nil
}

// find returns the ring that the master key unwraps, and the name under which it is stored.
func (s *Ring) find(tx *store.Tx) (name string, h *keyset.Handle, err error) {
	wrapped, err := tx.Installation(Name)
	if err != nil {
		return "", nil, fmt.Errorf("reading the key ring: %w", err)
	}
	h, wrong := s.unwrap(wrapped)
	if wrong == nil {
		return Name, h, nil
	}
	next, err := nextRing(tx)
	if err != nil {
		return "", nil, err
	}
	if next == nil {
		return "", nil, wrong
	}
	h, err = s.unwrap(next.wrapped)
	return nextRingName, h, err
}

func (s *Ring) wrap(h *keyset.Handle) ([]byte, error) { return wrapWith(s.master, h) }

func wrapWith(master tink.AEAD, h *keyset.Handle) ([]byte, error) {
	var buf bytes.Buffer
	err := h.Write(keyset.NewBinaryWriter(&buf), master)
	return buf.Bytes(), fault.While(err, "wrapping the key ring")
}

func (s *Ring) unwrap(wrapped []byte) (*keyset.Handle, error) {
	h, err := keyset.Read(keyset.NewBinaryReader(bytes.NewReader(wrapped)), s.master)
	if err != nil {
		return nil, ErrMasterKey
	}
	return h, nil
}

// Rotate adds a new key to the ring, which encrypts all new secrets. Older ciphertexts remain
// readable.
func (s *Ring) Rotate(ctx context.Context) error {
	err := s.db.Write(ctx, scope.Server(), func(tx *store.Tx) error {
		_, h, err := s.find(tx)
		if err != nil {
			return err
		}
		if err := notReplacing(tx); err != nil {
			return err
		}
		m := keyset.NewManagerFromHandle(h)
		id, err := m.Add(aead.AES256GCMKeyTemplate())
		if err != nil {
			return fmt.Errorf("adding a key: %w", err)
		}
		if err := m.SetPrimary(id); err != nil {
			return fmt.Errorf("choosing the new key: %w", err)
		}
		if h, err = m.Handle(); err != nil {
			return fmt.Errorf("reading the new key ring: %w", err)
		}
		wrapped, err := s.wrap(h)
		if err != nil {
			return err
		}
		return tx.SetInstallation(Name, wrapped)
	})
	if err != nil {
		return fmt.Errorf("rotating the secrets keys: %w", err)
	}
	return s.load(ctx)
}

func (s *Ring) current() tink.AEAD {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.ring
}

// Encrypt encrypts a stack's secret.
func (s *Ring) Encrypt(_ context.Context, stackID string, plaintext []byte) ([]byte, error) {
	if s.isLost() {
		return nil, ErrNotStored
	}
	ct, err := s.current().Encrypt(plaintext, []byte(stackID))
	return ct, fault.While(err, "encrypting a secret")
}

// Decrypt decrypts a stack's secret. It returns a [fault.KindInvalid] error if this installation
// did not create the ciphertext for this stack.
func (s *Ring) Decrypt(ctx context.Context, stackID string, ciphertext []byte) ([]byte, error) {
	return s.decrypt(stackID, ciphertext, func() error { return s.load(ctx) })
}

// DecryptIn is [Ring.Decrypt] within a transaction.
func (s *Ring) DecryptIn(tx *store.Tx, stackID string, ciphertext []byte) ([]byte, error) {
	return s.decrypt(stackID, ciphertext, func() error { return s.loadIn(tx) })
}

func (s *Ring) decrypt(stackID string, ciphertext []byte, load func() error) ([]byte, error) {
	pt, err := s.current().Decrypt(ciphertext, []byte(stackID))
	if err == nil {
		return pt, nil
	}
	// Another server might have rotated the ring since it was read.
	if err := load(); err != nil {
		return nil, err
	}
	pt, err = s.current().Decrypt(ciphertext, []byte(stackID))
	if err != nil {
		return nil, fault.Invalid("a secret could not be decrypted; it was encrypted for another stack or by another server")
	}
	return pt, nil
}

// Check returns an error if the master key does not unwrap the database's key ring, and
// [store.ErrNotFound] if the database has none yet. It changes nothing.
func Check(ctx context.Context, db *store.DB, masterKey []byte) error {
	master, err := newMaster(masterKey)
	if err != nil {
		return err
	}
	return (&Ring{db: db, master: master}).load(ctx)
}
