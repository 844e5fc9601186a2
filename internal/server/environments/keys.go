package environments

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

const keySize = 32 // AES-256

// sealedFor is the scope of an environment's key in the key ring.
func sealedFor(environmentID string) string { return "environment/" + environmentID }

// Key encrypts the secrets of one environment. Its ciphertexts are of no use for another one, so that a caller who may
// only read an environment cannot open its secrets by copying them into another environment.
type Key struct {
	aead cipher.AEAD
	id   []byte // of the environment
}

// Key returns the key of an environment.
func (s *Service) Key(ctx context.Context, e store.Environment) (*Key, error) {
	raw, err := s.secrets.Decrypt(ctx, sealedFor(e.ID), e.SealedKey)
	if err != nil {
		return nil, fault.Wrap(fault.KindDamaged, err, "the secrets of environment %s cannot be read: they were encrypted with a master key that this server no longer has", e.Ref())
	}
	return newKey(e.ID, raw)
}

// createKey returns the sealed key of a new environment.
func (s *Service) createKey(ctx context.Context, environmentID string) ([]byte, error) {
	raw := make([]byte, keySize)
	rand.Read(raw)
	sealed, err := s.secrets.Encrypt(ctx, sealedFor(environmentID), raw)
	return sealed, fault.While(err, "sealing the key of an environment")
}

func newKey(environmentID string, raw []byte) (*Key, error) {
	block, err := aes.NewCipher(raw)
	if err != nil {
		return nil, fmt.Errorf("preparing the key of an environment: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &Key{aead, []byte(environmentID)}, fault.While(err, "preparing the key of an environment")
}

// Encrypt encrypts a secret.
func (k *Key) Encrypt(plaintext []byte) []byte {
	return k.aead.Seal(nil, nil, plaintext, k.id) //nolint:gosec // the AEAD makes a random nonce
}

// Decrypt decrypts a secret. It returns a [fault.KindInvalid] error if the ciphertext is not one of this key.
func (k *Key) Decrypt(ciphertext []byte) ([]byte, error) {
	plaintext, err := k.aead.Open(nil, nil, ciphertext, k.id)
	if err != nil {
		return nil, fault.Invalid("a secret of the environment cannot be decrypted: it was encrypted for another environment, or changed; set it again")
	}
	return plaintext, nil
}
