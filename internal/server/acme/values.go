package acme

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/caddyserver/certmagic"

	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// values stores encrypted values in the database, under names with slashes. It implements [certmagic.Storage].
type values struct {
	db      *store.DB
	secrets *keyring.Ring
}

// sealedFor returns the encryption scope of a value. Stacks' ids contain no slash.
func sealedFor(name string) string { return "acme/" + name }

// Store implements [certmagic.Storage].
func (v *values) Store(ctx context.Context, name string, value []byte) error {
	sealed, err := v.secrets.Encrypt(ctx, sealedFor(name), value)
	if err != nil {
		return err
	}
	err = v.db.Write(ctx, scope.Free, func(tx *store.Tx) error {
		return tx.SaveACMEValue(store.ACMEValue{Name: name, Sealed: sealed, ChangedAt: tx.Now()})
	})
	if err != nil {
		return fmt.Errorf("storing %s: %w", name, err)
	}
	return nil
}

// Load implements [certmagic.Storage].
func (v *values) Load(ctx context.Context, name string) ([]byte, error) {
	found, err := v.find(ctx, name)
	if err != nil {
		return nil, err
	}
	value, err := v.secrets.Decrypt(ctx, sealedFor(name), found.Sealed)
	if err != nil {
		// The cause is worded for the client of a stack.
		return nil, fmt.Errorf("decrypting %s failed: the database is damaged, or the server has another master key", name)
	}
	return value, nil
}

func (v *values) find(ctx context.Context, name string) (store.ACMEValue, error) {
	found, err := store.ReadOne(ctx, v.db, func(tx *store.Tx) (store.ACMEValue, error) { return tx.ACMEValue(name) })
	if errors.Is(err, store.ErrNotFound) {
		return found, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		return found, fmt.Errorf("reading %s: %w", name, err)
	}
	return found, nil
}

// Delete implements [certmagic.Storage].
func (v *values) Delete(ctx context.Context, name string) error {
	err := v.db.Write(ctx, scope.Free, func(tx *store.Tx) error { return tx.DeleteACMEValues(name) })
	if err != nil {
		return fmt.Errorf("deleting %s: %w", name, err)
	}
	return nil
}

// Exists implements [certmagic.Storage].
func (v *values) Exists(ctx context.Context, name string) bool {
	_, err := v.Stat(ctx, name)
	return err == nil
}

// List implements [certmagic.Storage].
func (v *values) List(ctx context.Context, dir string, recursive bool) ([]string, error) {
	found, err := v.below(ctx, dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, value := range found {
		name := value.Name
		if rest := name[len(dir)+1:]; !recursive {
			first, _, _ := strings.Cut(rest, "/")
			name = dir + "/" + first
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (v *values) below(ctx context.Context, dir string) ([]store.ACMEValue, error) {
	found, err := store.ReadOne(ctx, v.db, func(tx *store.Tx) ([]store.ACMEValue, error) { return tx.ACMEValues(dir) })
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", dir, err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: %w", dir, fs.ErrNotExist)
	}
	return found, nil
}

// Stat implements [certmagic.Storage].
func (v *values) Stat(ctx context.Context, name string) (certmagic.KeyInfo, error) {
	found, err := v.find(ctx, name)
	if err == nil {
		return certmagic.KeyInfo{Key: name, Modified: found.ChangedAt, Size: int64(len(found.Sealed)), IsTerminal: true}, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		_, err = v.below(ctx, name)
	}
	if err != nil {
		return certmagic.KeyInfo{}, err
	}
	return certmagic.KeyInfo{Key: name}, nil
}

// Lock implements [certmagic.Storage]. All orders and renewals run while their server holds a lock of the database; see
// [Service.maintain]. So no other server holds this lock, nor does another goroutine of this one.
func (*values) Lock(context.Context, string) error { return nil }

// Unlock implements [certmagic.Storage].
func (*values) Unlock(context.Context, string) error { return nil }
