package keyring

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// AddMaster makes the ring readable with a second master key, to which all servers can then change one after another.
// The ring is the same, so secrets of servers with either key are readable for all.
func (s *Ring) AddMaster(ctx context.Context, next []byte) error {
	if bytes.Equal(next, s.masterKey) {
		return fault.Invalid("the new master key is the current one")
	}
	master, err := newMaster(next)
	if err != nil {
		return err
	}
	err = s.db.Write(ctx, scope.Server(), func(tx *store.Tx) error {
		name, h, err := s.find(tx)
		if err != nil {
			return err
		}
		if name != Name {
			return errReplacing
		}
		earlier, err := nextRing(tx)
		if err != nil {
			return err
		}
		if earlier != nil {
			if _, err := (&Ring{master: master}).unwrap(earlier.wrapped); err != nil {
				return errReplacing // servers can have the earlier key already
			}
		}
		current, err := tx.Installation(Name)
		if err != nil {
			return err
		}
		wrapped, err := wrapWith(master, h)
		if err != nil {
			return err
		}
		digest := sha256.Sum256(current)
		return tx.SetInstallation(nextRingName, append(digest[:], wrapped...))
	})
	return fault.While(err, "adding a master key")
}

// RetireMaster makes the ring readable only with the key that [Ring.AddMaster] has added, which must be the key of this
// ring.
func (s *Ring) RetireMaster(ctx context.Context) error {
	err := s.db.Write(ctx, scope.Server(), func(tx *store.Tx) error {
		name, _, err := s.find(tx)
		if err != nil {
			return err
		}
		next, err := nextRing(tx)
		switch {
		case err != nil:
			return err
		case next == nil:
			return fault.Invalid("no new master key was added")
		case name != nextRingName:
			return fault.Invalid("the settings still name the old master key: name the new one, and restart all servers first")
		}
		current, err := tx.Installation(Name)
		if err != nil {
			return err
		}
		if sha256.Sum256(current) != next.of {
			return fault.Invalid("a program of an earlier version has added a key to the ring since: add the new master key again, with the settings of the old one")
		}
		return errors.Join(tx.SetInstallation(Name, next.wrapped), tx.DeleteInstallation(nextRingName))
	})
	return fault.While(err, "retiring the old master key")
}

var errReplacing = fault.Invalid("the master key is being replaced: finish that first")

// notReplacing returns an error while two master keys can read the ring.
func notReplacing(tx *store.Tx) error {
	next, err := nextRing(tx)
	if err == nil && next != nil {
		err = errReplacing
	}
	return err
}

// successor is the value with the name [nextRingName].
type successor struct {
	of      [sha256.Size]byte // digest of the value that it replaces
	wrapped []byte
}

// nextRing returns the ring for the new master key, or nil if there is none.
func nextRing(tx *store.Tx) (*successor, error) {
	value, err := tx.Installation(nextRingName)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the key ring: %w", err)
	case len(value) < sha256.Size:
		return nil, errors.New("the database's key ring is damaged")
	}
	return &successor{[sha256.Size]byte(value[:sha256.Size]), value[sha256.Size:]}, nil
}
