package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/sys/diskspace"
	"workflowagent/internal/sys/durable"
	"workflowagent/internal/words"
)

const (
	// leastSpace is the free space at which a backup ends, because the disk can also be that of the server.
	leastSpace = 2 * store.LeastSpace
	// spaceEvery is the number of bytes after which the free space is checked.
	spaceEvery = 4 << 20

	// maxUnsynced and maxOpen bound what has not been synced to disk, so that neither memory nor the syncs of the server
	// suffer.
	maxUnsynced = 16 << 20
	maxOpen     = 64
)

// output writes the files of a backup.
type output struct {
	root     string
	dir      string     // the last one that was created
	open     []*os.File // not synced yet
	unsynced int64
	unseen   int64 // bytes since the last check of the space
}

// file is a file that is being written.
type file struct {
	ctx  context.Context //nolint:containedctx // Write has no other way to end
	out  *output
	f    *os.File
	hash hash.Hash
	size int64
}

func (o *output) create(ctx context.Context, name string) (*file, error) {
	path, err := o.prepare(ctx, name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &file{ctx: ctx, out: o, f: f, hash: sha256.New()}, nil
}

// prepare creates the directory of a file, and returns the file's path.
func (o *output) prepare(ctx context.Context, name string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := o.space(spaceEvery / maxOpen); err != nil { // an inode and its directory entry also need space
		return "", err
	}
	path := filepath.Join(o.root, name)
	if dir := filepath.Dir(path); dir != o.dir {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", err
		}
		o.dir = dir
	}
	return path, nil
}

// space returns an error if little space remains.
func (o *output) space(written int64) error {
	if o.unseen += written; o.unseen < spaceEvery {
		return nil
	}
	o.unseen = 0
	_, free, err := diskspace.Of(o.root)
	if err == nil && free < leastSpace {
		err = fault.New(fault.KindUnavailable, "the disk of %s has only %s of free space, of which the server may need %s: free up space, or use another disk", o.root, words.Bytes(free), words.Bytes(leastSpace))
	}
	return err
}

// Write implements [io.Writer].
func (f *file) Write(p []byte) (int, error) {
	if err := errors.Join(f.ctx.Err(), f.out.space(int64(len(p)))); err != nil {
		return 0, err
	}
	n, err := f.f.Write(p)
	f.hash.Write(p[:n])
	f.size += int64(n)
	return n, err
}

// abandon closes a file that is not complete.
func (f *file) abandon() error { return f.f.Close() }

// finish completes a file, which is durable after the next sync.
func (f *file) finish() (Part, error) {
	part := Part{Size: f.size, SHA256: hex.EncodeToString(f.hash.Sum(nil))}
	f.out.open = append(f.out.open, f.f)
	f.out.unsynced += f.size
	if len(f.out.open) < maxOpen && f.out.unsynced < maxUnsynced {
		return part, nil
	}
	return part, f.out.sync()
}

func (o *output) write(ctx context.Context, name string, data []byte) (Part, error) {
	f, err := o.create(ctx, name)
	if err != nil {
		return Part{}, err
	}
	if _, err := f.Write(data); err != nil {
		return Part{}, errors.Join(err, f.abandon())
	}
	return f.finish()
}

// link gives a file of another backup a second name. It reports whether that was possible.
func (o *output) link(ctx context.Context, from, name string, size int64) (bool, error) {
	info, err := os.Lstat(from)
	if err != nil || !info.Mode().IsRegular() || info.Size() != size {
		return false, nil //nolint:nilerr // the file is copied
	}
	path, err := o.prepare(ctx, name)
	if err != nil {
		return false, err
	}
	return os.Link(from, path) == nil, nil
}

// sync makes the completed files durable.
func (o *output) sync() error {
	var errs []error
	for _, f := range o.open {
		errs = append(errs, f.Sync(), f.Close())
	}
	o.open, o.unsynced = nil, 0
	return errors.Join(errs...)
}

// syncAll makes all files and directories durable.
func (o *output) syncAll(ctx context.Context) error {
	if err := o.sync(); err != nil {
		return err
	}
	err := filepath.WalkDir(o.root, func(path string, entry fs.DirEntry, err error) error {
		if err := errors.Join(err, ctx.Err()); err != nil || !entry.IsDir() {
			return err
		}
		return durable.SyncDir(path)
	})
	if err != nil {
		return fmt.Errorf("syncing the backup to disk: %w", err)
	}
	return nil
}

// close closes the files that were not synced, of a backup that failed.
func (o *output) close() {
	for _, f := range o.open {
		_ = f.Close()
	}
	o.open = nil
}
