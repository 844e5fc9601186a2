package blob

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"
)

// Files stores each blob in its own file below a directory.
type Files struct {
	dir  string
	seed maphash.Seed
	// locks serializes appends to the same key. A key's hash selects its lock.
	locks  [64]sync.Mutex
	opened *opened
	held   holds
	frozen frozen
}

// NewFiles returns a store in dir. It creates dir if necessary.
func NewFiles(dir string) (*Files, error) {
	if dir == "" {
		return nil, errors.New("a SQLite database requires a blob directory")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the blob directory: %w", err)
	}
	return &Files{dir: dir, seed: maphash.MakeSeed(), opened: newOpened(), held: holds{path: filepath.Join(dir, postponedName)}}, nil
}

func (b *Files) path(key string) (string, error) {
	if err := checkKey(key); err != nil {
		return "", err
	}
	return filepath.Join(b.dir, filepath.FromSlash(key)), nil
}

func (b *Files) lock(key string) *sync.Mutex {
	return &b.locks[maphash.String(b.seed, key)%uint64(len(b.locks))]
}

// Put implements [Store].
func (b *Files) Put(_ context.Context, key string, r io.Reader) error {
	path, err := b.path(key)
	if err != nil {
		return err
	}
	mu := b.lock(key)
	mu.Lock()
	defer mu.Unlock()
	if err := b.makeParent(path); err != nil {
		return err
	}
	f, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o600), renameio.WithTempDir(filepath.Dir(path)))
	if err != nil {
		return fmt.Errorf("creating blob %s: %w", key, err)
	}
	defer f.Cleanup() //nolint:errcheck // no effect after the rename
	if _, err := io.Copy(f, r); err != nil {
		return fmt.Errorf("writing blob %s: %w", key, err)
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("writing blob %s: %w", key, err)
	}
	return syncDir(filepath.Dir(path))
}

// Get implements [Store].
func (b *Files) Get(_ context.Context, key string) (io.ReadCloser, error) {
	path, err := b.path(key)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("blob %s: %w", key, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("opening blob %s: %w", key, err)
	}
	return f, nil
}

// ReadAt implements [Store].
func (b *Files) ReadAt(_ context.Context, key string, offset int64, p []byte) (int, error) {
	path, err := b.path(key)
	if err != nil || offset < 0 {
		return 0, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("opening blob %s: %w", key, err)
	}
	defer f.Close()
	n, err := f.ReadAt(p, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("reading blob %s: %w", key, err)
	}
	return n, nil
}

// Append implements [Store].
func (b *Files) Append(_ context.Context, key string, offset int64, p []byte) (size, added int64, err error) {
	mu := b.lock(key)
	mu.Lock()
	defer mu.Unlock()
	f, st, err := b.writable(key, true)
	if err != nil {
		return 0, 0, err
	}
	defer b.opened.put(f)
	size = st.Size()
	if offset < 0 || offset > size {
		return size, 0, ErrGap
	}
	have := size - offset
	if int64(len(p)) <= have {
		return size, 0, nil
	}
	b.frozen.note(key, size)
	n, err := f.WriteAt(p[have:], size)
	if err != nil {
		err = fmt.Errorf("writing blob %s: %w", key, err)
	}
	return size + int64(n), int64(n), err
}

// Size implements [Store].
func (b *Files) Size(_ context.Context, key string) (int64, error) {
	path, err := b.path(key)
	if err != nil {
		return 0, err
	}
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading blob %s: %w", key, err)
	}
	return st.Size(), nil
}

// Total implements [Store].
func (b *Files) Total(ctx context.Context, prefix string) (int64, error) {
	root, err := b.path(prefix)
	if err != nil {
		return 0, err
	}
	var total int64
	err = filepath.WalkDir(root, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = entry.Info(); err == nil {
				total += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a missing prefix, or removed by a concurrent call
		}
		return errors.Join(err, ctx.Err())
	})
	if err != nil {
		return 0, fmt.Errorf("measuring blobs of %s: %w", prefix, err)
	}
	return total, nil
}

// Sync implements [Store].
func (b *Files) Sync(_ context.Context, key string, safe int64) (int64, error) {
	f, _, err := b.writable(key, false)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer b.opened.put(f)
	f.syncing.Lock() // the operating system reports a failure to only one of several callers
	defer f.syncing.Unlock()
	// The state is older than the sync, which might not cover later appends.
	st, err := f.Stat()
	if err == nil {
		err = f.File.Sync()
	}
	if err != nil {
		return 0, fmt.Errorf("syncing blob %s to disk: %w", key, errors.Join(err, b.cut(key, f.Name(), safe)))
	}
	if !f.entered.Load() {
		if err := syncDir(filepath.Dir(f.Name())); err != nil {
			return 0, err
		}
		f.entered.Store(true)
	}
	return st.Size(), nil
}

// cut removes the bytes of a blob's file after the first size bytes.
func (b *Files) cut(key, path string, size int64) error {
	mu := b.lock(key)
	mu.Lock()
	defer mu.Unlock()
	st, err := os.Stat(path)
	if err != nil || st.Size() <= size {
		return err
	}
	return os.Truncate(path, size)
}

// Delete implements [Store]. If a backup holds the blobs, their removal takes place when it ends.
func (b *Files) Delete(_ context.Context, prefix string) error {
	if err := checkKey(prefix); err != nil {
		return err
	}
	if postponed, err := b.postpone(prefix); postponed {
		return err
	}
	return b.remove(prefix)
}

func (b *Files) remove(prefix string) error {
	path, err := b.path(prefix)
	if err != nil {
		return err
	}
	err = os.RemoveAll(path)
	b.opened.drop(prefix) // an open file would occupy the disk
	if err != nil {
		return fmt.Errorf("removing blobs of %s: %w", prefix, err)
	}
	return nil
}

// Sweep implements [Store]. It also removes incomplete files left by a crash. It does nothing while a backup holds
// the blobs.
func (b *Files) Sweep(ctx context.Context, prefix string, age time.Duration, named func(keys []string) ([]string, error)) (int, error) {
	root, err := b.path(prefix)
	if err != nil {
		return 0, err
	}
	if idle, err := b.held.finish(b); !idle || err != nil {
		return 0, err
	}
	before := time.Now().Add(-age)
	removed := 0
	var keys []string
	ask := func() error {
		n, err := deleteUnnamed(ctx, b, keys, named)
		removed += n
		keys = keys[:0]
		return err
	}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed by a concurrent call
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.ModTime().Before(before) {
			return nil
		}
		if err != nil {
			return err
		}
		if strings.HasPrefix(entry.Name(), ".") { // a temporary file of Put; no key starts with a dot
			return os.Remove(path) //nolint:gosec // only the server can write to the directory, and Remove does not follow links
		}
		below, err := filepath.Rel(b.dir, path)
		if err != nil {
			return err
		}
		if keys = append(keys, filepath.ToSlash(below)); len(keys) < sweepPiece {
			return nil
		}
		return ask()
	})
	if err == nil {
		err = ask()
	}
	if err != nil {
		return removed, fmt.Errorf("removing unused blobs: %w", err)
	}
	return removed, nil
}

// makeParent creates a blob's parent directory and syncs the new directory entries.
func (b *Files) makeParent(path string) error {
	dir := filepath.Dir(path)
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("creating the parent directory of a blob: %w", err)
	}
	for d := dir; len(d) >= len(b.dir); d = filepath.Dir(d) {
		if err := syncDir(d); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("opening a blob directory: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("syncing a blob directory to disk: %w", err)
	}
	return nil
}
