package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/api/control"
	"workflowagent/internal/server/backup"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/triggers"
)

func newBackups(cfg config.Config, db *store.DB, version string, log *logrus.Entry) *backup.Service {
	plan := backup.Plan{Request: cfg.Backups()}
	if schedule := cfg.BackupSchedule; schedule != "" {
		plan.Next = func(after time.Time) (time.Time, error) { return triggers.NextTime(schedule, after) }
	}
	return backup.New(backupSource(cfg, db, version, log), plan)
}

func backupSource(cfg config.Config, db *store.DB, version string, log *logrus.Entry) backup.Source {
	return backup.Source{DB: db, Version: version, MasterKey: cfg.MasterKey(), Log: log}
}

// openDatabase opens the database. It backs up the installation before it updates an earlier schema.
func (s *Server) openDatabase(ctx context.Context, version string) (*store.DB, error) {
	o := databaseOptions(s.cfg, s.log)
	if s.cfg.BackupBeforeUpgrade {
		o.BeforeUpdate = store.BeforeUpdate(o.Log, func(ctx context.Context, db *store.DB) error {
			log := s.logOf("backup")
			log.Info("backing up the installation before its schema is updated")
			s.supervision.Starting("backing up the installation before its schema is updated")
			defer s.supervision.Starting("updating the schema of the database")
			return backup.BeforeUpdate(ctx, backupSource(s.cfg, db, version, log), s.cfg.Backups())
		})
	}
	return store.Open(ctx, s.cfg.DSN(), o)
}

// AdministerAlone is like [Administer], but no server can start while this process uses the database itself: a server
// removes what a backup still copies.
func AdministerAlone(ctx context.Context, cfg config.Config, version, onBehalf string, log *logrus.Entry) (admin.Caller, func() error, error) {
	caller, closeCaller, err := Administer(ctx, cfg, version, onBehalf, log)
	if err != nil {
		return nil, nil, err
	}
	if _, running := caller.(*control.Client); running {
		return caller, closeCaller, nil
	}
	lock, err := lockDatabase(ctx, cfg)
	if err != nil {
		return nil, nil, errors.Join(err, closeCaller())
	}
	return caller, func() error {
		if lock != nil {
			defer lock.Release()
		}
		return closeCaller()
	}, nil
}

// RestoreRequest says what [Restore] restores.
type RestoreRequest struct {
	Dir string // a backup, or a directory of backups
	// Passphrase and WithoutKey are those of [backup.Target].
	Passphrase string
	WithoutKey bool
}

// Restore restores a backup, or the newest one in a directory, to the new database of a configuration.
func Restore(ctx context.Context, cfg config.Config, version string, q RestoreRequest, log *logrus.Entry) (backup.Restored, error) {
	wanted, dirs := sockets(cfg, os.Geteuid())
	wanted.Version = version
	client, err := control.Find(ctx, wanted, dirs...)
	if err == nil {
		defer client.Close()
		return backup.Restored{}, fault.Conflict("a server (process %d) runs on %s: stop it, and restore to an empty data directory or database", client.About().PID, cfg.DataDir)
	}
	if !errors.Is(err, control.ErrNotRunning) {
		return backup.Restored{}, fmt.Errorf("not restoring, because a server may be running: %w", err)
	}
	dir, err := filepath.Abs(q.Dir)
	if err != nil {
		return backup.Restored{}, fmt.Errorf("finding the backup: %w", err)
	}
	if err := prepareRestore(cfg); err != nil {
		return backup.Restored{}, err
	}
	lock, err := lockDatabase(ctx, cfg)
	if err != nil {
		return backup.Restored{}, err
	}
	if lock != nil {
		defer lock.Release()
	}
	return backup.Restore(ctx, dir, backup.Target{
		DSN: cfg.DSN(), Options: databaseOptions(cfg, log), MasterKey: cfg.MasterKey(), Passphrase: q.Passphrase, WithoutKey: q.WithoutKey,
	})
}

// prepareRestore creates the data directory. If root runs this process, it becomes the owner of an existing one.
func prepareRestore(cfg config.Config) error {
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("creating the data directory: %w", err)
	}
	if os.Geteuid() == 0 {
		become, err := becomingOwnerOf(cfg.DataDir, strings.HasPrefix(cfg.DSN(), "sqlite:"), isNamed(cfg))
		if err == nil {
			err = become()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
