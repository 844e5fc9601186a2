package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/config"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/store"
)

// OpenSecrets opens a database's key ring with the configured master key. It creates the key if it
// is missing and the database is not shared: on a shared database, a server with a new key could
// not read the other servers' secrets.
func OpenSecrets(ctx context.Context, cfg config.Config, db *store.DB) (*keyring.Ring, error) {
	source := cfg.MasterKey()
	if source.Create {
		exists, err := keyring.Exists(ctx, db)
		if err != nil {
			return nil, err
		}
		source.Create = !exists // a new key could not read the secrets
	}
	key, err := source.Load(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: put your copy of the key there, or if it is lost, see workflow-server secrets discard --help", err)
	}
	if err != nil {
		return nil, err
	}
	return keyring.Open(ctx, db, key)
}

// DiscardSecrets lets an installation whose master key is lost start with a new one. It refuses if the key is not
// lost, or if a server runs.
func DiscardSecrets(ctx context.Context, cfg config.Config, log *logrus.Entry) (err error) {
	source := cfg.MasterKey()
	inDataDir := source.Create // where the server's user could have put a link
	source.Create = false
	var key []byte
	if !inDataDir {
		key, err = source.Load(ctx)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = BecomeOwner(cfg)
	}
	if err == nil && inDataDir {
		key, err = source.Load(ctx)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	path, pid, err := findHolder(cfg)
	if err != nil {
		return err
	}
	if pid != 0 {
		return fault.Conflict("nothing was discarded: a server (process %d) uses the database %s: stop it first", pid, path)
	}
	lock, err := lockDatabase(ctx, cfg)
	if err != nil {
		return err
	}
	if lock != nil {
		defer lock.Release()
	}
	db, err := OpenExistingDatabase(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if key != nil {
		switch err := keyring.Check(ctx, db, key); {
		case err == nil:
			return fault.Conflict("nothing was discarded: %s opens the secrets of the installation", source)
		case !errors.Is(err, keyring.ErrMasterKey):
			return err
		}
	}
	return keyring.Discard(ctx, db)
}
