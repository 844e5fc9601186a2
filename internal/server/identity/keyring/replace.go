package keyring

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

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
// ring. It refuses while servers run with another one; see [Ring.Present].
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
		if err := s.checkAlone(tx); err != nil {
			return err
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

var errDamaged = errors.New("the database's key ring is damaged")

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
		return nil, errDamaged
	}
	return &successor{[sha256.Size]byte(value[:sha256.Size]), value[sha256.Size:]}, nil
}

// Stored are the values of an installation that contain wrapped keys, by name. While the master key is being replaced,
// there are two, and two master keys open the ring.
type Stored map[string][]byte

// ReadStored returns the wrapped keys of an installation, or none if it has none yet.
func ReadStored(tx *store.Tx) (Stored, error) {
	stored := Stored{}
	for _, name := range []string{Name, nextRingName} {
		value, err := tx.Installation(name)
		if store.IgnoreMissing(err) != nil {
			return nil, fmt.Errorf("reading the key ring: %w", err)
		}
		if err == nil {
			stored.Keep(name, value)
		}
	}
	return stored, nil
}

// Keep keeps a value of the installation if it contains wrapped keys.
func (s Stored) Keep(name string, value []byte) {
	if name == Name || name == nextRingName {
		s[name] = slices.Clone(value)
	}
}

// Check returns an error if the master key in the text of a file does not open the ring. Without a ring, every key does.
func (s Stored) Check(text string) error {
	if len(s) == 0 {
		return nil
	}
	key, err := parseMasterKey(text)
	if err != nil {
		return fmt.Errorf("the file %w", err)
	}
	master, err := newMaster(key)
	if err != nil {
		return err
	}
	ring := &Ring{master: master}
	_, wrong := ring.unwrap(s[Name])
	next, replacing := s[nextRingName]
	if wrong == nil || !replacing {
		return wrong
	}
	if len(next) < sha256.Size {
		return errDamaged
	}
	if _, err := ring.unwrap(next[sha256.Size:]); err != nil {
		return errors.New("it is neither the old nor the new master key of the replacement that had begun")
	}
	return nil
}
