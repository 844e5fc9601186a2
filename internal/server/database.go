package server

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/config"
	"workflowagent/internal/server/store"
)

// OpenDatabase opens the database of a configuration.
func OpenDatabase(ctx context.Context, cfg config.Config, log *logrus.Entry) (*store.DB, error) {
	return store.Open(ctx, cfg.DSN(), databaseOptions(cfg, log))
}

func databaseOptions(cfg config.Config, log *logrus.Entry) store.Options {
	o := store.Options{Log: log.WithField("subsystem", "store"), BlobDir: filepath.Join(cfg.DataDir, "blobs")}
	if !strings.HasPrefix(cfg.DSN(), "sqlite:") {
		o.MaxConns = store.ConnsOf(cfg.DatabaseConns)
	}
	return o
}

// OpenExistingDatabase opens the database of a configuration for a command. It returns an error if
// no server has created the database: a command in the wrong directory must not create one there. It
// never updates the schema, because an older server may be running.
func OpenExistingDatabase(ctx context.Context, cfg config.Config, log *logrus.Entry) (*store.DB, error) {
	if err := checkExists(cfg); err != nil {
		return nil, err
	}
	opts := databaseOptions(cfg, log)
	opts.Existing = true
	return store.Open(ctx, cfg.DSN(), opts)
}

// checkExists returns an error if the file of a SQLite database is missing.
func checkExists(cfg config.Config) error {
	if path, ok := strings.CutPrefix(cfg.DSN(), "sqlite:"); ok && path != "" {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return &NoDatabaseError{path}
		}
	}
	return nil
}

// NoDatabaseError means that no server has created the database of a configuration.
type NoDatabaseError struct{ path string }

func (e *NoDatabaseError) Error() string {
	return "the database " + e.path + " does not exist: use the settings data_dir and database of the server"
}

// Is reports that the error is like that of a missing file.
func (e *NoDatabaseError) Is(target error) bool { return target == fs.ErrNotExist }
