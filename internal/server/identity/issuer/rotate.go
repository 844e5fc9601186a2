package issuer

import (
	"context"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Maintain creates the first key, publishes a new key when one is due, and removes keys whose
// tokens have expired.
func (s *Service) Maintain(ctx context.Context) error {
	var keys []store.SigningKey
	var now time.Time
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		now = tx.Now()
		keys, err = tx.SigningKeys()
		return err
	})
	if err != nil {
		return fmt.Errorf("reading the signing keys: %w", err)
	}
	if due(keys, now, s.opts.Rotation) {
		return s.publish(ctx, func(keys []store.SigningKey, now time.Time) (bool, error) {
			return due(keys, now, s.opts.Rotation), nil // another server might have published one
		})
	}
	if len(expired(keys, now)) == 0 {
		return nil
	}
	return s.db.Write(ctx, scope.Server(), func(tx *store.Tx) error {
		now := tx.Now()
		keys, err := tx.SigningKeys()
		if err != nil {
			return err
		}
		for _, id := range expired(keys, now) {
			if err := tx.DeleteSigningKey(id); err != nil {
				return err
			}
			tx.OnCommit(func() { s.log.WithField("key", id).Info("removed a signing key whose tokens have expired") })
		}
		return nil
	})
}

// Rotate publishes a new key, which begins to sign after [Lead]. It returns an error if the next
// key is already published.
func (s *Service) Rotate(ctx context.Context) error {
	return s.publish(ctx, func(keys []store.SigningKey, now time.Time) (bool, error) {
		if last := len(keys) - 1; last >= 0 && signing(keys, now) != last {
			return false, fmt.Errorf("the key %s is already published and signs from %s; to replace the keys at once, use --revoke",
				keys[last].ID, keys[last].UseFrom.Format(time.RFC3339))
		}
		return true, nil
	})
}

// publish adds a key if wanted, in one transaction with the decision. The first key signs at once.
func (s *Service) publish(ctx context.Context, wanted func(keys []store.SigningKey, now time.Time) (bool, error)) error {
	return s.add(ctx, func(tx *store.Tx, keys []store.SigningKey, k store.SigningKey) error {
		if ok, err := wanted(keys, k.CreatedAt); err != nil || !ok {
			return err
		}
		if len(keys) > 0 {
			k.UseFrom = k.CreatedAt.Add(Lead)
		}
		tx.OnCommit(func() {
			s.log.WithFields(logrus.Fields{"key": k.ID, "signs_from": k.UseFrom.Format(time.RFC3339)}).Info("published a signing key")
		})
		return tx.InsertSigningKey(k)
	})
}

// Revoke replaces all keys with a new one, which signs at once. Verifiers reject the tokens of the
// old keys as soon as they have fetched the keys again.
func (s *Service) Revoke(ctx context.Context) error {
	return s.add(ctx, func(tx *store.Tx, keys []store.SigningKey, fresh store.SigningKey) error {
		for _, k := range keys {
			if err := tx.DeleteSigningKey(k.ID); err != nil {
				return err
			}
		}
		return tx.InsertSigningKey(fresh)
	})
}

// add calls fn in a transaction, with the published keys and a new key that signs at once.
func (s *Service) add(ctx context.Context, fn func(tx *store.Tx, keys []store.SigningKey, fresh store.SigningKey) error) error {
	fresh, err := s.newKey(ctx)
	if err != nil {
		return err
	}
	return s.db.Write(ctx, scope.Server(), func(tx *store.Tx) error {
		// LeaseTime shifts the times of earlier keys by the server's downtime.
		now, err := tx.LeaseTime()
		if err != nil {
			return err
		}
		keys, err := tx.SigningKeys()
		if err != nil {
			return err
		}
		fresh.CreatedAt, fresh.UseFrom = now, now
		return fn(tx, keys, fresh)
	})
}

// Key describes a published key.
type Key struct {
	ID       string
	Signs    bool      // it signs new tokens
	UseFrom  time.Time // when it began or will begin to sign
	Replaced time.Time // when the next key began or will begin to sign; zero if no next key is published
}

// Keys returns the published keys in the order in which they sign.
func (s *Service) Keys(ctx context.Context) ([]Key, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) (out []Key, err error) {
		keys, err := tx.SigningKeys()
		if err != nil {
			return nil, err
		}
		now := tx.Now()
		for i, k := range keys {
			key := Key{ID: k.ID, Signs: i == signing(keys, now), UseFrom: k.UseFrom}
			if i+1 < len(keys) {
				key.Replaced = keys[i+1].UseFrom
			}
			out = append(out, key)
		}
		return out, nil
	})
}
