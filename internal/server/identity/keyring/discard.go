package keyring

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Discard puts a key ring aside whose master key is lost, and removes the server's own keys that only the ring opens.
// The next start makes new ones. Other ciphertexts remain, but cannot be decrypted. Discard refuses while servers share
// the database. One that stands still meanwhile notices it later, by [Ring.CheckStored].
func Discard(ctx context.Context, db *store.DB) error {
	err := db.Write(ctx, scope.Server(), func(tx *store.Tx) error {
		if err := checkStopped(tx); err != nil {
			return err
		}
		for _, name := range []string{Name, nextRingName} {
			if err := putAside(tx, name); err != nil {
				return err
			}
		}
		return tx.DeleteSealedKeys()
	})
	return fault.While(err, "discarding the key ring")
}

func checkStopped(tx *store.Tx) error {
	running, ago, hosts, err := tx.Servers()
	if err != nil || !running {
		return err
	}
	where := ""
	if len(hosts) > 0 {
		where = ", connected from " + strings.Join(hosts, " and ")
	}
	return fault.Conflict("a server used this database %s ago%s: stop all servers first, and repeat the command a minute later", ago.Round(time.Second), where)
}

// putAside gives a wrapped ring another name, so that it is not lost if its master key is found again.
func putAside(tx *store.Tx, name string) error {
	wrapped, err := tx.Installation(name)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the key ring: %w", err)
	}
	aside := name + "-discarded-" + tx.Now().UTC().Format(time.RFC3339Nano)
	return errors.Join(tx.SetInstallation(aside, wrapped), tx.DeleteInstallation(name))
}
