package keyring_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
)

// TestDiscardKeepsTheRing checks that a discarded ring can still be opened with its key if that is found again.
func TestDiscardKeepsTheRing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		lost := open(t, db, 1)
		must.OK(t, lost.AddMaster(t.Context(), bytes.Repeat([]byte{2}, 32)))
		before := must.Get(store.Read(t.Context(), db, keyring.ReadStored))(t)
		must.OK(t, keyring.Discard(t.Context(), db))
		if must.Get(keyring.Exists(t.Context(), db))(t) {
			t.Error("the ring is still in use")
		}
		open(t, db, 3)
		must.OK(t, keyring.Discard(t.Context(), db))
		var names, values []string
		must.OK(t, db.Read(t.Context(), func(tx *store.Tx) (err error) {
			if names, err = database.Scalars[string](tx.Tx, "SELECT name FROM installation WHERE name LIKE '%discarded%' ORDER BY name"); err != nil {
				return err
			}
			for _, name := range names {
				value, err := tx.Installation(name)
				if err != nil {
					return err
				}
				values = append(values, string(value))
			}
			return nil
		}))
		if len(names) != 3 || len(before) != 2 {
			t.Errorf("the kept rings are %v, want 3", names)
		}
		for name, value := range before {
			if !slices.Contains(values, string(value)) {
				t.Errorf("the value %s is not kept", name)
			}
		}
	})
}

// TestDiscardBesideServers checks that no ring is discarded that running servers use.
func TestDiscardBesideServers(t *testing.T) {
	db := storetest.Postgres(t)
	open(t, db, 1)
	beat := func(ago time.Duration) {
		t.Helper()
		must.OK(t, db.Write(t.Context(), scope.Free, func(tx *store.Tx) error { return tx.Beat(tx.Now().Add(-ago), time.Minute) }))
	}
	beat(time.Second)
	err := keyring.Discard(t.Context(), db)
	if fault.KindOf(err) != fault.KindConflict || !strings.Contains(err.Error(), "stop all servers first") {
		t.Errorf("discarding while a server runs: %v", err)
	}
	open(t, db, 1)
	for _, ago := range []time.Duration{4 * time.Minute, -time.Hour} {
		open(t, db, 1)
		beat(ago)
		must.OK(t, keyring.Discard(t.Context(), db))
	}
}

// TestDiscardedWhileAServerStoodStill checks that a server notices that its ring was discarded, also if another server
// has made a new one since, even with the same master key. Rotations and another master key change nothing.
func TestDiscardedWhileAServerStoodStill(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		checks := func(when string, s *keyring.Ring, want error) {
			t.Helper()
			for range 2 {
				if err := s.CheckStored(t.Context()); !errors.Is(err, want) {
					t.Errorf("%s: the ring is stored: %v, want %v", when, err, want)
				}
			}
			if _, err := s.Encrypt(t.Context(), "stack", []byte("new")); !errors.Is(err, want) {
				t.Errorf("%s: encrypting: %v, want %v", when, err, want)
			}
		}
		still, other := open(t, db, 1), open(t, db, 1)
		must.OK(t, other.Rotate(t.Context()))
		checks("after a rotation by another server", still, nil)
		must.OK(t, other.AddMaster(t.Context(), bytes.Repeat([]byte{2}, 32)))
		checks("with two master keys", still, nil)
		next := open(t, db, 2)
		checks("with the next master key", next, nil)
		must.OK(t, next.RetireMaster(t.Context()))
		checks("with another master key", still, nil)
		must.OK(t, keyring.Discard(t.Context(), db))
		checks("after it was discarded", still, keyring.ErrNotStored)
		open(t, db, 1)
		for _, s := range []*keyring.Ring{other, next} {
			checks("with a new ring", s, keyring.ErrNotStored)
		}
	})
}
