// Package dirtree removes and measures directories that untrusted programs have written, and may still
// write. It never leaves a directory through a link, opens nothing but directories, and stops when its
// context is done.
package dirtree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// batch is the number of entries to read at a time, because a directory can have any number of them.
	batch = 512
	// maxDepth is the depth from which Remove moves a directory up, and maxSizeDepth the one at which Size
	// gives up, because each level keeps a file open.
	maxDepth     = 20
	maxSizeDepth = 100
)

// Remove removes a file, or a directory with its content. It succeeds if name is missing. Programs
// leave directories without write permission, as Go does for its modules, so Remove grants that
// permission to the owner. If ctx ends first, a later call continues.
func Remove(ctx context.Context, root *os.Root, name string) error {
	r := remover{}
	return r.remove(ctx, root, name, 0)
}

type remover struct {
	top   *os.File // the directory to remove; nil until it was opened
	moved int      // directories that were moved to top
}

// remove removes an entry of a directory. Below the top, name is a single element, so no other program can
// make it lead out of that directory.
func (r *remover) remove(ctx context.Context, in *os.Root, name string, depth int) error {
	err := in.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	info, statErr := in.Lstat(name)
	if statErr != nil || !info.IsDir() {
		return ignoreMissing(errors.Join(err, statErr))
	}
	if info.Mode().Perm()&0o700 != 0o700 {
		_ = in.Chmod(name, 0o700) // the removal of the content reports the error
	}
	if depth > maxDepth && r.moveUp(in, name) {
		return nil
	}
	dir, err := enter(in, name, info)
	if err != nil {
		return ignoreMissing(err)
	}
	err = r.empty(ctx, dir, depth)
	if err = errors.Join(err, dir.Close(), ctx.Err()); err != nil {
		return err
	}
	return ignoreMissing(in.Remove(name))
}

// empty removes the entries of a directory.
func (r *remover) empty(ctx context.Context, dir *os.Root, depth int) error {
	if depth == 0 {
		top, err := dir.Open(".")
		if err != nil {
			return err
		}
		defer top.Close() // opened for reading only
		r.top = top
	}
	var errs []error
	// Entries that were read before others were removed can be missing from the next batch, so the
	// directory is read again until a pass removes nothing.
	for removed := true; removed && ctx.Err() == nil; {
		removed, errs = false, nil
		err := list(ctx, dir, func(name string) {
			if err := r.remove(ctx, dir, name, depth+1); err != nil {
				errs = append(errs[:min(len(errs), 3)], err)
			} else {
				removed = true
			}
		})
		if err := ignoreMissing(err); err != nil { // another process can be removing the same directory
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// moveUp moves a deep directory to the top, whose next pass removes it.
func (r *remover) moveUp(in *os.Root, name string) bool {
	from, err := in.Open(".")
	if err != nil {
		return false
	}
	defer from.Close() // opened for reading only
	r.moved++
	return unix.Renameat(int(from.Fd()), name, int(r.top.Fd()), ".deep-"+strconv.Itoa(r.moved)) == nil
}

// enter opens a directory, unless it was replaced by a link.
func enter(in *os.Root, name string, info fs.FileInfo) (*os.Root, error) {
	dir, err := in.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if opened, err := dir.Stat("."); err != nil || !os.SameFile(info, opened) {
		return nil, errors.Join(fmt.Errorf("%s was replaced while it was opened", name), err, dir.Close())
	}
	return dir, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// list calls visit with the name of each entry of a directory. In an [os.Root], reading more than the names
// would examine each entry, which takes most of the time.
func list(ctx context.Context, in *os.Root, visit func(name string)) error {
	dir, err := in.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close() // opened for reading only
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		names, err := dir.Readdirnames(batch)
		for _, name := range names {
			if ctx.Err() == nil {
				visit(name)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Size returns the number of bytes that a directory occupies on its disk. It counts the holes of a
// sparse file as nothing, and a file with several hard links once. Like [Remove], it grants the owner the
// permission to read directories. If ctx ends first, or a part is unreadable or too deep, or there are more
// than most entries, it returns an error and what it has counted. A missing directory has no size.
func Size(ctx context.Context, root *os.Root, name string, most int) (int64, error) {
	counting, stop := context.WithCancel(ctx)
	defer stop()
	m := measure{linked: map[[2]uint64]bool{}, left: most, stop: stop}
	m.directory(counting, root, name, 0)
	return m.bytes, errors.Join(m.err, ctx.Err())
}

type measure struct {
	bytes  int64
	linked map[[2]uint64]bool // device and inode of the files with several links
	err    error              // the first one
	left   int                // entries that may follow; this also bounds linked
	stop   func()             // ends the measurement
}

func (m *measure) directory(ctx context.Context, in *os.Root, name string, depth int) {
	info, err := in.Lstat(name)
	if err == nil && (!info.IsDir() || depth > maxSizeDepth) {
		err = fmt.Errorf("%s is not a directory, or nested too deeply", name)
	}
	if err != nil {
		m.fail(err)
		return
	}
	if info.Mode().Perm()&0o500 != 0o500 {
		_ = in.Chmod(name, info.Mode().Perm()|0o700) // entering it reports the error
	}
	dir, err := enter(in, name, info)
	if err != nil {
		m.fail(err)
		return
	}
	defer dir.Close() // opened for reading only
	m.fail(list(ctx, dir, func(name string) {
		if m.left--; m.left < 0 {
			m.fail(fmt.Errorf("%s has too many entries", name))
			m.stop()
			return
		}
		info, err := dir.Lstat(name)
		if err != nil {
			m.fail(err)
			return
		}
		m.add(info)
		if info.IsDir() {
			m.directory(ctx, dir, name, depth+1)
		}
	}))
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
		key := [2]uint64{uint64(stat.Dev), stat.Ino} //nolint:unconvert // the field's type differs between systems
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
	info, err := root.Lstat(dir)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	in, err := enter(root, dir, info)
	if err != nil {
		return nil, err
	}
	err = list(ctx, in, func(name string) { names = append(names, name) })
	return names, errors.Join(err, in.Close())
}
