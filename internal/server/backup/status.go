package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/termtext"
)

// statusName is the name of the installation's value that contains its [Status].
const statusName = "backups"

// Status is what an installation knows of its backups.
type Status struct {
	// Last is the last backup that a server or a command has written, or nil.
	Last *Written `json:"last,omitempty"`
	// Failure is the last failure of a backup that the schedule has begun, or nil.
	Failure *Failure `json:"failure,omitempty"`
	// Begun is when the last whole backup of the schedule began, by the clock of its server.
	Begun time.Time `json:"begun,omitzero"`
	// Unsealed is the path of the last backup of the schedule if it does not contain the master key, or "".
	Unsealed string `json:"unsealed,omitempty"`
}

// Written is a backup that was written.
type Written struct {
	Time time.Time `json:"time"` // of the snapshot
	Path string    `json:"path"`
	Host string    `json:"host"` // of the path
	// Took is how long the backup took.
	Took time.Duration `json:"took"`
	// Bytes is the size of its files, which can share their space with other backups.
	Bytes int64 `json:"bytes"`
	// Key reports whether the sealed master key is in it.
	Key bool `json:"key"`
}

// Failure is a backup that failed.
type Failure struct {
	Time  time.Time `json:"time"`
	Error string    `json:"error"`
}

// Failing returns the failure of the last backup, or nil if a later one was written.
func (s Status) Failing() *Failure {
	if s.Failure == nil || s.Last != nil && s.Last.Time.After(s.Failure.Time) {
		return nil
	}
	return s.Failure
}

// ReadStatus returns what the installation in a database knows of its backups.
func ReadStatus(ctx context.Context, db *store.DB) (Status, error) {
	s, err := store.ReadOne(ctx, db, loadStatus)
	return s, fault.While(err, "reading when the installation was backed up")
}

// Status returns what the installation knows of its backups.
func (s *Service) Status(ctx context.Context) (Status, error) { return ReadStatus(ctx, s.src.DB) }

func loadStatus(tx *store.Tx) (Status, error) {
	value, err := tx.Installation(statusName)
	if errors.Is(err, store.ErrNotFound) {
		return Status{}, nil
	}
	if err != nil {
		return Status{}, err
	}
	var s Status
	return s, json.Unmarshal(value, &s)
}

// change changes the status in the database. It must also work with earlier schemas.
func change(tx *store.Tx, set func(*Status)) error {
	status, err := loadStatus(tx)
	if err != nil {
		return err
	}
	set(&status)
	value, err := json.Marshal(status)
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	return tx.SetInstallation(statusName, value)
}

func written(r Result) *Written {
	host, _ := os.Hostname() // without it, the path says enough on one machine
	return &Written{Time: r.Manifest.Time, Path: r.Path, Host: host, Took: r.Took, Bytes: r.Manifest.Size(), Key: r.Manifest.Key != nil}
}

// recordSuccess records a backup. The backup exists also if that fails.
func (s *Service) recordSuccess(ctx context.Context, r Result) error {
	err := s.src.DB.Write(ctx, scope.Server(), func(tx *store.Tx) error {
		if err := change(tx, func(status *Status) { status.Last = written(r) }); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{
			Action: audit.BackupWritten, Subject: audit.Subject{Kind: "backup", Name: r.Path}, Detail: map[string]any{"key": r.Manifest.Key != nil},
		})
	})
	return fault.While(err, "recording the backup in the database")
}

// maxError bounds the recorded text of an error.
const maxError = 1000

func (s *Service) recordFailure(ctx context.Context, failure error) error {
	text := cmp.Or(termtext.OneLine(failure.Error(), maxError), "unknown")
	return s.src.DB.Write(ctx, scope.Server(), func(tx *store.Tx) error {
		return change(tx, func(status *Status) { status.Failure = &Failure{Time: time.Now().UTC(), Error: text} })
	})
}
