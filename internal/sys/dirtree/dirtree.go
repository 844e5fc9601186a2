// Package dirtree removes and measures directories that untrusted programs have written. It never
// follows a link, opens nothing but directories, and stops when its context is done.
package dirtree

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// batch is the number of entries to read at a time, because a directory can have any number of them.
const batch = 512

// maxDepth is the depth from which Remove moves a directory up. Otherwise, the time for a deeply nested
// directory would grow with the square of its depth.
const maxDepth = 20

// Remove removes a file, or a directory with its content. It succeeds if name is missing. Programs
// leave directories without write permission, as Go does for its modules, so Remove grants that
// permission to the owner. If ctx ends first, a later call continues.
func Remove(ctx context.Context, root *os.Root, name string) error {
	r := remover{root: root, top: name}
	return r.remove(ctx, name, 0)
}

type remover struct {
	root  *os.Root
	top   string
	moved int // directories that were moved to top
}

func (r *remover) remove(ctx context.Context, name string, depth int) error {
	err := r.root.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	info, statErr := r.root.Lstat(name)
	if statErr != nil || !info.IsDir() {
		return ignoreMissing(errors.Join(err, statErr))
	}
	if info.Mode().Perm()&0o700 != 0o700 {
		_ = r.root.Chmod(name, 0o700) // the removal of the content reports the error
	}
	if depth > maxDepth && r.moveUp(name) {
		return nil
	}
	var errs []error
	// Entries that were read before others were removed can be missing from the next batch, so the
	// directory is read again until a pass removes nothing.
	for removed := true; removed && ctx.Err() == nil; {
		removed, errs = false, nil
		err := list(ctx, r.root, name, func(entry fs.DirEntry) {
			if err := r.remove(ctx, filepath.Join(name, entry.Name()), depth+1); err != nil {
				errs = append(errs[:min(len(errs), 3)], err)
			} else {
				removed = true
			}
		})
		if err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return err
	}
	return ignoreMissing(r.root.Remove(name))
}

// moveUp moves a directory to the top, whose next pass removes it.
func (r *remover) moveUp(name string) bool {
	r.moved++
	return r.root.Rename(name, filepath.Join(r.top, ".deep-"+strconv.Itoa(r.moved))) == nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// list calls visit for each entry of a directory. It returns no error for a missing directory.
func list(ctx context.Context, root *os.Root, name string, visit func(fs.DirEntry)) error {
	dir, err := root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return ignoreMissing(err)
	}
	defer dir.Close() // opened for reading only
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		entries, err := dir.ReadDir(batch)
		for _, entry := range entries {
			if ctx.Err() == nil {
				visit(entry)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return ignoreMissing(err)
		}
	}
}

// Size returns the number of bytes that a directory occupies on its disk. It counts the holes of a
// sparse file as nothing, and a file with several hard links once. If ctx ends first, or a part is
// unreadable, it returns the error and what it has counted.
func Size(ctx context.Context, root *os.Root, name string) (int64, error) {
	m := measure{linked: map[[2]uint64]bool{}}
	m.directory(ctx, root, name)
	return m.bytes, errors.Join(m.err, ctx.Err())
}

type measure struct {
	bytes  int64
	linked map[[2]uint64]bool // device and inode of the files with several links
	err    error              // the first one
}

func (m *measure) directory(ctx context.Context, root *os.Root, name string) {
	err := list(ctx, root, name, func(entry fs.DirEntry) {
		info, err := entry.Info()
		if err != nil {
			m.fail(err)
			return
		}
		m.add(info)
		if entry.IsDir() {
			m.directory(ctx, root, filepath.Join(name, entry.Name()))
		}
	})
	m.fail(err)
}

func (m *measure) fail(err error) {
	if m.err == nil {
		m.err = ignoreMissing(err)
	}
}

func (m *measure) add(info fs.FileInfo) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		m.bytes += info.Size()
		return
	}
	if stat.Nlink > 1 && !info.IsDir() {
		key := [2]uint64{uint64(stat.Dev), stat.Ino} //nolint:gosec,unconvert // the field's type differs between systems
		if m.linked[key] {
			return
		}
		m.linked[key] = true
	}
	m.bytes += stat.Blocks * 512
}

// RemoveEntries removes the entries of a directory for which keep returns false.
func RemoveEntries(ctx context.Context, root *os.Root, dir string, keep func(name string) bool) error {
	names, err := Names(ctx, root, dir)
	for _, name := range names {
		if !keep(name) {
			err = errors.Join(err, Remove(ctx, root, filepath.Join(dir, name)))
		}
	}
	return err
}

// Names returns the names of the entries of a directory. It returns none for a missing directory.
func Names(ctx context.Context, root *os.Root, dir string) (names []string, err error) {
	err = list(ctx, root, dir, func(entry fs.DirEntry) { names = append(names, entry.Name()) })
	return names, err
}
