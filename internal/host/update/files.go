package update

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"workflowagent/internal/sys/filelock"
)

// step is called between the steps of an update. Tests replace it to kill the process at a step.
var step = func(string) {}

// openPlain opens a regular file in a directory that another user can change at any time. It
// follows no link and does not wait for a pipe or device.
func openPlain(dir *os.Root, name string) (*os.File, error) {
	before, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if after, err := f.Stat(); err != nil || !os.SameFile(before, after) {
		return nil, errors.Join(fmt.Errorf("%s was replaced while it was opened", name), err, f.Close())
	}
	return f, nil
}

// readPlain reads a small file that openPlain can open.
func readPlain(dir *os.Root, name string) ([]byte, error) {
	f, err := openPlain(dir, name)
	if err != nil {
		return nil, err
	}
	return readSmall(f)
}

// load reads a small JSON file.
func load(dir *os.Root, name string, into any) error {
	text, err := readPlain(dir, name)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// store writes a JSON file, replacing any existing file.
func store(dir *os.Root, name string, from any) error {
	text, err := json.MarshalIndent(from, "", "  ")
	if err != nil {
		return err
	}
	return replace(dir, name, text)
}

// finish syncs a file to disk and closes it.
func finish(f *os.File) error {
	return errors.Join(f.Sync(), f.Close())
}

// writeFile creates a file with the given mode, regardless of the umask, and syncs it.
func writeFile(dir *os.Root, name string, data []byte, mode fs.FileMode) error {
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chmod(mode), finish(f))
}

// next returns the temporary name of a new file or link, which is later renamed over the existing
// one.
func next(name string) string { return "." + name + ".new" }

// replace replaces a file with a single rename, and syncs the file and the directory.
func replace(dir *os.Root, name string, data []byte) error {
	if err := dir.RemoveAll(next(name)); err != nil {
		return err
	}
	err := writeFile(dir, next(name), data, 0o644)
	step("written")
	if err == nil {
		err = dir.Rename(next(name), name)
	}
	if err != nil {
		return errors.Join(err, dir.RemoveAll(next(name)))
	}
	return syncDir(dir, ".")
}

func syncDir(dir *os.Root, name string) error {
	f, err := dir.Open(name)
	if err != nil {
		return err
	}
	return finish(f)
}

// sweep removes all entries of a directory except the named ones.
func sweep(dir *os.Root, but ...string) error {
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if slices.Contains(but, entry.Name()) {
			continue
		}
		if err := dir.RemoveAll(entry.Name()); err != nil {
			return err
		}
	}
	return nil
}

// locked calls do while it holds the installation's lock. It returns [ErrBusy] if another process
// holds the lock.
func (i Installation) locked(do func(root *os.Root) error) error {
	if err := i.checkOwner(); err != nil {
		return err
	}
	return lockedDir(i.Root, rootLock, do)
}

// lockedDir calls do while it holds the lock in the named file of a directory.
func lockedDir(path, name string, do func(dir *os.Root) error) error {
	dir, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // all written files are already closed
	f, err := dir.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	lock, err := filelock.Try(f)
	if _, held := errors.AsType[*filelock.HeldError](err); held {
		return fmt.Errorf("%w (%w)", ErrBusy, err)
	}
	if err != nil {
		return err
	}
	defer lock.Release()
	return do(dir)
}
