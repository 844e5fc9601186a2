package keyring

import (
	"bytes"
	"context"
	"crypto/sha256"
	"slices"

	"github.com/tink-crypto/tink-go/v2/keyset"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// ErrNotStored means that the database does not contain the keys of a ring any more.
var ErrNotStored = fault.New(fault.KindUnavailable, "the secrets of the database were discarded or replaced while this server stood still, and the next start could not decrypt what it encrypts now: start it again with the settings of the other servers, and set the secrets again that it received meanwhile")

// CheckStored returns [ErrNotStored] if the database does not contain the key any more with which the ring encrypts, so
// that the next start would not find it. From then on, the ring refuses to encrypt. A ring whose master key was retired
// since the last check is still stored.
func (s *Ring) CheckStored(ctx context.Context) error {
	stored, err := store.Read(ctx, s.db, ReadStored)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	current, next := stored[Name], stored[nextRingName]
	own := len(current) > 0 && (bytes.Equal(current, s.successor) || s.opens(current))
	if len(next) > sha256.Size { // for another master key; see [successor]
		own = own || s.opens(next[sha256.Size:])
		if digest := sha256.Sum256(current); bytes.HasPrefix(next, digest[:]) {
			s.successor = next[sha256.Size:]
		}
	}
	if own {
		return nil
	}
	s.lost = true
	return ErrNotStored
}

// opens reports whether a wrapped ring contains the key with which s encrypts. The caller must hold s.mu.
func (s *Ring) opens(wrapped []byte) bool {
	h, err := s.unwrap(wrapped)
	return err == nil && hasKey(h, s.primary)
}

func hasKey(h *keyset.Handle, id uint32) bool {
	return slices.ContainsFunc(h.KeysetInfo().GetKeyInfo(), func(k *tinkpb.KeysetInfo_KeyInfo) bool { return k.GetKeyId() == id })
}

func (s *Ring) isLost() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.lost
}
