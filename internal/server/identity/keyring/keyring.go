// Package keyring encrypts stack secrets with keys stored in the database, wrapped by a master key.
package keyring

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/aead/subtle"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/sys/boundedfile"
)

const keyRingName = "secrets-key-ring"

// masterKeySize is the size of the master key in bytes (AES-256).
const masterKeySize = 32

// Ring encrypts stack secrets. The database stores the ring's keys, so that servers share the ring.
// The keys are wrapped by a master key outside the database, so that a copy of the database alone
// reveals no secrets. Each ciphertext is bound to a scope, such as its stack's id, and cannot be
// decrypted for another one.
type Ring struct {
	db     *store.DB
	master tink.AEAD

	mu   sync.RWMutex
	ring tink.AEAD
}

// Open unwraps a database's key ring with a 32-byte master key. It creates the ring if necessary.
func Open(ctx context.Context, db *store.DB, masterKey []byte) (*Ring, error) {
	if len(masterKey) != masterKeySize {
		return nil, fmt.Errorf("the master key has %d bytes instead of %d", len(masterKey), masterKeySize)
	}
	master, err := subtle.NewAESGCM(masterKey)
	if err != nil {
		return nil, fmt.Errorf("preparing the master key: %w", err)
	}
	s := &Ring{db: db, master: master}
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
	err = db.Write(ctx, scope.Server(), func(tx *store.Tx) error { return tx.AddInstallation(keyRingName, wrapped) })
	if err != nil {
		return nil, fmt.Errorf("storing the key ring: %w", err)
	}
	return s, s.load(ctx)
}

func (s *Ring) load(ctx context.Context) error { return s.db.Read(ctx, s.loadIn) }

func (s *Ring) loadIn(tx *store.Tx) error {
	wrapped, err := tx.Installation(keyRingName)
	if err != nil {
		return fmt.Errorf("reading the key ring: %w", err)
	}
	h, err := s.unwrap(wrapped)
	if err != nil {
		return err
	}
	ring, err := aead.New(h)
	if err != nil {
		return fmt.Errorf("preparing the key ring: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ring = ring
	return nil
}

func (s *Ring) wrap(h *keyset.Handle) ([]byte, error) {
	var buf bytes.Buffer
	err := h.Write(keyset.NewBinaryWriter(&buf), s.master)
	return buf.Bytes(), fault.While(err, "wrapping the key ring")
}

func (s *Ring) unwrap(wrapped []byte) (*keyset.Handle, error) {
	h, err := keyset.Read(keyset.NewBinaryReader(bytes.NewReader(wrapped)), s.master)
	if err != nil {
		return nil, errors.New("unwrapping the database's key ring failed: use the master key with which the database was created")
	}
	return h, nil
}

// Rotate adds a new key to the ring, which encrypts all new secrets. Older ciphertexts remain
// readable.
func (s *Ring) Rotate(ctx context.Context) error {
	err := s.db.Write(ctx, scope.Server(), func(tx *store.Tx) error {
		wrapped, err := tx.Installation(keyRingName)
		if err != nil {
			return err
		}
		h, err := s.unwrap(wrapped)
		if err != nil {
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
		if wrapped, err = s.wrap(h); err != nil {
			return err
		}
		return tx.SetInstallation(keyRingName, wrapped)
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

// maxKeyFile is the size of the largest file with a master key, in bytes. Real ones are much smaller.
const maxKeyFile = 4 << 10

// LoadMasterKey reads a base64 master key from a file. If the file does not exist and create is
// set, it creates a key that only its owner can read.
func LoadMasterKey(path string, create bool) ([]byte, error) {
	data, err := boundedfile.Read(path, maxKeyFile)
	if errors.Is(err, fs.ErrNotExist) && create {
		return createMasterKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the master key: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(data)))
	if err != nil || len(key) != masterKeySize {
		return nil, fmt.Errorf("the file %s must contain a master key: %d bytes in base64", path, masterKeySize)
	}
	return key, nil
}

// Derive returns a key for one purpose, which does not reveal the master key.
func Derive(masterKey []byte, purpose string) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, masterKey, nil, purpose, sha256.Size)
	return key, fault.While(err, "deriving a key")
}

// Check returns an error if the master key does not unwrap the database's key ring, and
// [store.ErrNotFound] if the database has none yet. It changes nothing.
func Check(ctx context.Context, db *store.DB, masterKey []byte) error {
	master, err := subtle.NewAESGCM(masterKey)
	if err != nil {
		return fmt.Errorf("preparing the master key: %w", err)
	}
	return (&Ring{db: db, master: master}).load(ctx)
}

func createMasterKey(path string) ([]byte, error) {
	key := make([]byte, masterKeySize)
	rand.Read(key)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating the master key: %w", err)
	}
	_, err = f.WriteString(base64.StdEncoding.EncodeToString(key) + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return nil, fmt.Errorf("writing the master key: %w", err)
	}
	return key, nil
}
