package keyring

import (
	"bytes"
	"context"
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
		if name != keyRingName {
			return errReplacing
		}
		if earlier, err := tx.Installation(nextRingName); err == nil {
			if _, err := (&Ring{master: master}).unwrap(earlier); err != nil {
				return errReplacing // servers can have the earlier key already
			}
		} else if !errors.Is(err, store.ErrNotFound) {
			return err
		}
		wrapped, err := wrapWith(master, h)
		if err != nil {
			return err
		}
		return tx.SetInstallation(nextRingName, wrapped)
	})
	return fault.While(err, "adding a master key")
}

// RetireMaster makes the ring readable only with the key that [Ring.AddMaster] has added, which must be the key of this
// ring.
func (s *Ring) RetireMaster(ctx context.Context) error {
	err := s.db.Write(ctx, scope.Server(), func(tx *store.Tx) error {
		name, h, err := s.find(tx)
		if err != nil {
			return err
		}
		if name != nextRingName {
			if err := notReplacing(tx); err == nil {
				return fault.Invalid("no new master key was added")
			}
			return fault.Invalid("the settings still name the old master key: name the new one, and restart all servers first")
		}
		wrapped, err := s.wrap(h)
		if err != nil {
			return err
		}
		return errors.Join(tx.SetInstallation(keyRingName, wrapped), tx.DeleteInstallation(nextRingName))
	})
	return fault.While(err, "retiring the old master key")
}

var errReplacing = fault.Invalid("the master key is being replaced: finish that first")

// notReplacing returns an error while two master keys can read the ring.
func notReplacing(tx *store.Tx) error {
	_, err := tx.Installation(nextRingName)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("reading the key ring: %w", err)
	}
	return errReplacing
}
