package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/store"
	"workflowagent/internal/sys/durable"
)

// Target is where a backup is restored.
type Target struct {
	// DSN and Options are those of the new database.
	DSN     string
	Options store.Options
	// MasterKey is the file that receives the master key of the backup. If it exists, or if a command prints the key, it
	// must be the installation's.
	MasterKey keyring.Source
	// Passphrase opens the sealed key; "" ignores that key.
	Passphrase string
	// WithoutKey permits a restore of secrets although the key that opens them is not available.
	WithoutKey bool
}

// Restored describes a restored backup.
type Restored struct {
	Report
	// Key says whether the key of the installation's secrets is in its place.
	Key bool
}

// Restore verifies a backup, or the newest one in a directory, and restores it to a new database. If it returns an error,
// the database contains nothing.
func Restore(ctx context.Context, dir string, to Target) (Restored, error) {
	b, err := openNewest(dir)
	if err != nil {
		return Restored{}, fmt.Errorf("not restoring the backup: %w", err)
	}
	defer b.close()
	var report Report
	var key []byte
	var isNew bool
	verify := func() (err error) {
		if report, err = b.verify(ctx, ""); err == nil {
			key, isNew, err = b.masterKey(ctx, report, to)
		}
		return err
	}
	err = store.Receive(ctx, to.DSN, to.Options, b.manifest.Schema, verify, func(r *store.Receiver) error {
		if err := b.load(ctx, r); err != nil {
			return err
		}
		if !isNew {
			return nil
		}
		return writeKey(to.MasterKey.File, key)
	})
	if err != nil {
		return Restored{}, fmt.Errorf("restoring the backup %s: %w", b.path, explain(err, b.manifest))
	}
	return Restored{Report: report, Key: key != nil}, nil
}

// masterKey returns the content of the file with the key that fits the backup, and whether the file is new. It returns
// nil if the key is not available.
func (b *stored) masterKey(ctx context.Context, report Report, to Target) (content []byte, isNew bool, err error) {
	existing, err := to.MasterKey.Text(ctx)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, false, err
	}
	exists := err == nil
	content = existing
	if to.Passphrase != "" {
		if content, err = b.sealedKey(report.keys, to.Passphrase); err != nil {
			return nil, false, err
		}
		if exists && !bytes.Equal(bytes.TrimSpace(content), bytes.TrimSpace(existing)) {
			if len(report.keys) == 0 || report.keys.Check(string(existing)) != nil {
				return nil, false, fault.Conflict("%s is another key than that of the backup: move it away", to.MasterKey)
			}
			content = existing // the master key was being replaced: both open the secrets
		}
	}
	if content == nil && (to.WithoutKey || len(report.keys) == 0) {
		return nil, false, nil
	}
	if content == nil {
		ways := fmt.Sprintf("put the master key of the installation into %s", to.MasterKey)
		if b.manifest.Key != nil {
			ways = "name the file with the passphrase of its master key with --key-passphrase-file"
		}
		return nil, false, fault.Invalid("the secrets of the backup %s cannot be decrypted without its master key: %s, or restore it without the key with --without-key", b.path, ways)
	}
	if err := report.keys.Check(string(content)); err != nil {
		return nil, false, fault.Invalid("%s does not open the secrets of the backup (%v): use the master key of the installation that was backed up", to.MasterKey, err)
	}
	return content, !exists, nil
}

func writeKey(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("writing the master key: %w", err)
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing the master key: %w", errors.Join(err, os.Remove(path)))
	}
	return durable.SyncDir(filepath.Dir(path))
}

// load adds all rows and blobs to a database.
func (b *stored) load(ctx context.Context, r *store.Receiver) error {
	err := b.eachTable(r.Relations, func(t Table, rel store.Relation) error { return b.loadTable(ctx, r, t, rel) })
	if err != nil {
		return err
	}
	return b.eachBlob(func(entry Blob) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := b.openBlob(entry)
		if err != nil {
			return err
		}
		defer h.f.Close()
		if err := r.Blobs.Add(ctx, entry.Key, io.LimitReader(h, entry.Size)); err != nil {
			return err
		}
		if err := h.complete(); err != nil {
			return damaged(blobName(entry.Key), err)
		}
		return nil
	})
}

func (b *stored) loadTable(ctx context.Context, r *store.Receiver, t Table, rel store.Relation) error {
	return b.readTable(t, rel, func(columns []store.Column, rows iter.Seq2[[]any, error]) error {
		if t.Name == installationTable {
			mark, err := recovery.Mark(b.manifest.Time)
			if err != nil {
				return err
			}
			rows = marked(rows, columns, mark)
		}
		return r.Load(ctx, store.Relation{Name: t.Name, Columns: columns}, rows)
	})
}

// marked replaces the installation's value that says that it was restored.
func marked(rows iter.Seq2[[]any, error], columns []store.Column, mark []byte) iter.Seq2[[]any, error] {
	name := slices.Index(columns, store.Column{Name: "name", Kind: store.Text})
	value := slices.Index(columns, store.Column{Name: "value", Kind: store.Bytea})
	return func(yield func([]any, error) bool) {
		if name < 0 || value < 0 || len(columns) != 2 {
			yield(nil, errors.New("it has other columns than this program knows"))
			return
		}
		for values, err := range rows {
			if key, _ := values[name].(string); err == nil && gone(key) {
				continue
			}
			if !yield(values, err) || err != nil {
				return
			}
		}
		row := make([]any, len(columns))
		row[name], row[value] = recovery.Name, mark
		yield(row, nil)
	}
}

// gone reports whether a value of the installation describes what need not exist after a restore: an earlier restore,
// the known backups, and running servers.
func gone(name string) bool {
	return name == recovery.Name || name == statusName || strings.HasPrefix(name, keyring.PresencePrefix)
}
