package backup

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/blob"
	"workflowagent/internal/sys/durable"
)

// Source is an installation.
type Source struct {
	DB *store.DB
	// Version is that of the program.
	Version string
	// MasterKey is where the key comes from that wraps the keys of secrets.
	MasterKey keyring.Source
	Log       *logrus.Entry
}

// Request says how to write a backup.
type Request struct {
	// Dir is the directory that receives a directory with the backup. It is created if it does not exist.
	Dir string
	// Keep is the number of backups in Dir after which the oldest ones are removed; 0 keeps all.
	Keep int
	// Passphrase seals the master key in the backup; "" leaves it out.
	Passphrase string
}

// Result describes a written backup.
type Result struct {
	Path     string
	Manifest Manifest
	// Linked is the number of blobs that the backup shares with the previous one.
	Linked int64
	// Removed are the names of old backups that were removed.
	Removed []string
	// Unremoved is why old backups were not removed, or nil.
	Unremoved error
	// Unrecorded is why the installation does not know of the backup, or nil.
	Unrecorded error
	Took       time.Duration
}

// Progress is how much of a backup has been written.
type Progress struct {
	Rows, Blobs, Bytes int64 // bytes of blobs
}

// Write writes a backup. If it returns an error, no backup exists. report is called now and then.
func Write(ctx context.Context, src Source, q Request, report func(Progress)) (Result, error) {
	began := time.Now()
	dir, err := openTarget(q.Dir)
	if err != nil {
		return Result{}, err
	}
	lock, err := lockDir(ctx, dir)
	if err != nil {
		return Result{}, err
	}
	defer lock.Release()
	if err := removePartial(dir); err != nil {
		return Result{}, err
	}
	id, err := src.DB.InstallationID(ctx, rand.Text())
	if err != nil {
		return Result{}, err
	}
	w := &writer{src: src, request: q, dir: dir, report: report, manifest: Manifest{Format: Format, Server: src.Version, Installation: id}}
	err = src.DB.Snapshot(ctx, func(s *store.Snapshot) error { return w.write(ctx, s) })
	if err != nil {
		return Result{}, fmt.Errorf("writing a backup to %s: %w", dir, errors.Join(err, w.abort()))
	}
	result := Result{Path: w.path, Manifest: w.manifest, Linked: w.linked}
	result.Removed, result.Unremoved = prune(dir, q.Keep, w.manifest, w.path)
	result.Took = time.Since(began)
	return result, nil
}

// writer writes one backup.
type writer struct {
	src      Source
	request  Request
	dir      string // of all backups
	report   func(Progress)
	manifest Manifest

	out      *output
	partial  string // the backup's directory until it is whole
	path     string // and afterwards
	previous *previous
	last     string // key of the last blob
	linked   int64
	done     Progress
}

func (w *writer) write(ctx context.Context, s *store.Snapshot) (err error) {
	w.manifest.Time, w.manifest.Engine = s.Now().UTC(), s.Engine()
	if w.manifest.Schema, err = s.SchemaVersions(); err != nil {
		return err
	}
	if err := w.begin(); err != nil {
		return err
	}
	defer w.out.close()
	if w.previous, err = openPrevious(w.dir, w.manifest); err != nil {
		w.src.Log.WithError(err).Warn("the previous backup cannot be read; this backup copies everything")
	}
	defer w.previous.close()
	if err := w.tables(ctx, s); err != nil {
		return err
	}
	if err := w.blobs(ctx, s); err != nil {
		return err
	}
	if err := w.key(ctx, s); err != nil {
		return err
	}
	return w.finish(ctx)
}

// begin creates the directory of the backup.
func (w *writer) begin() error {
	at := w.manifest.Time
	for ; ; at = at.Add(time.Second) { // another backup can have begun in the same second
		w.path = filepath.Join(w.dir, at.Format(timeLayout))
		if _, err := os.Lstat(w.path); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
	}
	w.partial = filepath.Join(w.dir, partialPrefix+filepath.Base(w.path))
	w.out = &output{root: w.partial}
	for _, dir := range []string{w.partial, filepath.Join(w.partial, tablesDir), filepath.Join(w.partial, blobsDir)} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// abort removes the incomplete backup.
func (w *writer) abort() error {
	if w.partial == "" {
		return nil
	}
	return os.RemoveAll(w.partial)
}

func (w *writer) tables(ctx context.Context, s *store.Snapshot) error {
	relations, err := s.Relations()
	if err != nil {
		return err
	}
	for _, r := range relations {
		t := Table{Name: r.Name}
		t.Part, err = w.compressed(ctx, filepath.Join(tablesDir, r.Name+tableSuffix), func(to io.Writer) error {
			rows, err := newRowWriter(to, r.Columns)
			if err != nil {
				return err
			}
			err = s.EachRow(r, func(values []any) error {
				w.count(Progress{Rows: 1})
				return rows.write(values)
			})
			t.Rows = rows.rows
			return err
		})
		if err != nil {
			return err
		}
		w.manifest.Tables = append(w.manifest.Tables, t)
	}
	return nil
}

// compressed writes a compressed file.
func (w *writer) compressed(ctx context.Context, name string, write func(io.Writer) error) (Part, error) {
	f, err := w.out.create(ctx, name)
	if err != nil {
		return Part{}, err
	}
	z, err := zstd.NewWriter(f, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20), zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		return Part{}, errors.Join(err, f.abandon())
	}
	if err := errors.Join(write(z), z.Close()); err != nil {
		return Part{}, errors.Join(err, f.abandon())
	}
	return f.finish()
}

const idsPerPage = 1000

// The tables that name the archives of policy packs, and the logs of policy evaluations. Earlier schemas do not have them.
const (
	packsTable       = "policy_pack_versions"
	evaluationsTable = "policy_evaluations"
)

func (w *writer) has(table string) bool {
	return slices.ContainsFunc(w.manifest.Tables, func(t Table) bool { return t.Name == table })
}

// blobs writes the blobs that the snapshot names, and their list in the order of [blob.Compare].
func (w *writer) blobs(ctx context.Context, s *store.Snapshot) error {
	part, err := w.compressed(ctx, blobsName, func(to io.Writer) error {
		add := func(key string) error { return w.blob(ctx, s, key, to) }
		logged := func(after string, limit int) ([]string, error) {
			return s.LoggedJobs(after, limit, w.has(evaluationsTable))
		}
		err := eachPage(logged, func(job string) error {
			keys, err := s.Blobs.Keys(ctx, "logs/"+job)
			return errors.Join(err, each(keys, add))
		})
		if err == nil && w.has(packsTable) {
			err = eachPage(s.PackBlobs, add)
		}
		if err != nil {
			return err
		}
		return eachPage(s.StackIDs, func(stack string) error {
			keys, err := s.StateBlobs(stack)
			return errors.Join(err, each(keys, add))
		})
	})
	w.manifest.Blobs.Part = part
	return err
}

func each[T any](all []T, do func(T) error) error {
	for _, v := range all {
		if err := do(v); err != nil {
			return err
		}
	}
	return nil
}

// eachPage calls do with all ids, of which page returns those that follow one.
func eachPage(page func(after string, limit int) ([]string, error), do func(id string) error) error {
	for after := ""; ; {
		ids, err := page(after, idsPerPage)
		if err != nil {
			return err
		}
		if err := each(ids, do); err != nil {
			return err
		}
		if len(ids) < idsPerPage {
			return nil
		}
		after = ids[len(ids)-1]
	}
}

// Blob is an entry of the list of blobs.
type Blob struct {
	Key      string    `json:"key"`
	Size     int64     `json:"size"`
	SHA256   string    `json:"sha256"`
	Modified time.Time `json:"modified"` // in the installation
}

// blob adds one blob and its entry.
func (w *writer) blob(ctx context.Context, s *store.Snapshot, key string, list io.Writer) error {
	if w.last != "" && blob.Compare(w.last, key) >= 0 {
		return fmt.Errorf("the blob %s belongs before %s: the rows of a stack or a job name one of another", key, w.last)
	}
	w.last = key
	info, err := s.Blobs.Stat(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		w.missing(key)
		return nil
	}
	if err != nil {
		return err
	}
	entry, err := w.link(ctx, key, info)
	if err != nil {
		return err
	}
	if entry.Key == "" {
		if entry, err = w.copyBlob(ctx, s, key, info); err != nil {
			return err
		}
	}
	line, err := json.Marshal(entry)
	if err != nil {
		return fmt.Errorf("encoding an entry: %w", err)
	}
	w.manifest.Blobs.Count++
	w.manifest.Blobs.Bytes += entry.Size
	w.count(Progress{Blobs: 1, Bytes: entry.Size})
	_, err = list.Write(append(line, '\n'))
	return err
}

// missing records a state without content. A backup of all others is worth more than none.
func (w *writer) missing(key string) {
	if len(w.manifest.Missing) == 0 {
		w.src.Log.WithField("blob", key).Error("the installation has no content for a state; the backup contains the others")
	}
	if len(w.manifest.Missing) < maxListed {
		w.manifest.Missing = append(w.manifest.Missing, key)
	}
}

// link adds a blob of the previous backup that has not changed since. It returns an empty entry if that is not possible.
func (w *writer) link(ctx context.Context, key string, info blob.Info) (Blob, error) {
	entry, err := w.previous.find(key)
	if err != nil {
		w.src.Log.WithError(err).Warn("the previous backup cannot be read; this backup copies everything else")
		w.previous.close()
		w.previous = nil
		return Blob{}, nil
	}
	if entry.Key == "" || entry.Size != info.Size || !entry.Modified.Equal(info.Modified) {
		return Blob{}, nil
	}
	linked, err := w.out.link(ctx, w.previous.blobPath(key), blobName(key), info.Size)
	if err != nil || !linked {
		return Blob{}, err
	}
	w.linked++
	return entry, nil
}

func blobName(key string) string { return filepath.Join(blobsDir, filepath.FromSlash(key)) }

func (w *writer) copyBlob(ctx context.Context, s *store.Snapshot, key string, info blob.Info) (Blob, error) {
	r, err := s.Blobs.Open(ctx, key)
	if err != nil {
		return Blob{}, err
	}
	defer r.Close()
	f, err := w.out.create(ctx, blobName(key))
	if err != nil {
		return Blob{}, err
	}
	if _, err := io.Copy(f, r); err != nil {
		return Blob{}, errors.Join(fmt.Errorf("copying blob %s: %w", key, err), f.abandon())
	}
	part, err := f.finish()
	return Blob{Key: key, Size: part.Size, SHA256: part.SHA256, Modified: info.Modified}, err
}

func (w *writer) key(ctx context.Context, s *store.Snapshot) error {
	if w.request.Passphrase == "" {
		return nil
	}
	stored, err := keyring.ReadStored(s.Tx)
	if err != nil {
		return err
	}
	sealed, err := sealKey(ctx, w.src.MasterKey, stored, w.request.Passphrase)
	if err != nil {
		return err
	}
	part, err := w.out.write(ctx, keyName, sealed)
	w.manifest.Key = &part
	return err
}

// finish makes the backup whole.
func (w *writer) finish(ctx context.Context) error {
	data, err := json.MarshalIndent(w.manifest, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the manifest: %w", err)
	}
	if _, err := w.out.write(ctx, manifestName, append(data, '\n')); err != nil {
		return err
	}
	if err := w.out.syncAll(ctx); err != nil {
		return err
	}
	if err := os.Rename(w.partial, w.path); err != nil {
		return err
	}
	if err := durable.SyncDir(w.dir); err != nil {
		return errors.Join(err, os.RemoveAll(w.path))
	}
	w.report(w.done)
	return nil
}

// reportEvery is the number of rows and blobs between two reports.
const reportEvery = 1000

func (w *writer) count(p Progress) {
	w.done = Progress{w.done.Rows + p.Rows, w.done.Blobs + p.Blobs, w.done.Bytes + p.Bytes}
	if (w.done.Rows+w.done.Blobs)%reportEvery == 0 {
		w.report(w.done)
	}
}
