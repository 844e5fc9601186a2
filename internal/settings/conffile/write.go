package conffile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"

	"workflowagent/internal/sys/durable"
)

// Create writes a new configuration file atomically. Only its owner can access it and, if readers is not nil, the
// members of that group can read it. It does not write if there is a file or a link, which must have been created since
// the caller looked.
func Create(path string, text []byte, readers *int) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("writing the configuration file: %s was created in the meantime: run the command again", path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("writing the configuration file: %w", err)
	}
	return explain(path, replace(path, text, func(f *os.File) error {
		if readers == nil {
			return nil
		}
		return share(f, *readers)
	}))
}

// share lets a group read an open file, by its descriptor: its name could lead to another file by now.
func share(f *os.File, gid int) error {
	if err := errors.Join(f.Chown(-1, gid), f.Chmod(newMode|0o040)); err != nil {
		return fmt.Errorf("letting group %d read it: %w", gid, err)
	}
	return nil
}

// Write replaces a configuration file atomically. If the path is a symbolic link, Write replaces
// the link's target. The new file keeps the owner and the group of the old file, but only the owner
// can write to it and other users lose all access. The group keeps its read permission only if
// other users had none. If the file did not exist, only its owner can access it. The note, if not
// empty, is a message for the user.
func Write(path string, text []byte) (note string, err error) {
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if info, lerr := os.Lstat(path); lerr == nil && info.Mode()&fs.ModeSymlink != 0 {
			return "", fmt.Errorf("writing the configuration file: %s is a symbolic link to a file that does not exist: create that file, or remove the link", path)
		}
		target, err = path, nil
	}
	if err != nil {
		return "", fmt.Errorf("writing the configuration file: %w", err)
	}
	mode := newMode
	old, err := os.Stat(target)
	switch {
	case err == nil:
		mode = keptMode(old.Mode().Perm())
		if mode != old.Mode().Perm() {
			note = fmt.Sprintf("the mode of %s was %04o and is now %04o, because the file may contain a token", target, old.Mode().Perm(), mode)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("writing the configuration file: %w", err)
	}
	err = explain(target, replace(target, text, func(f *os.File) error {
		if old == nil {
			return nil
		}
		if stat, ok := old.Sys().(*syscall.Stat_t); ok {
			if err := f.Chown(int(stat.Uid), int(stat.Gid)); err != nil {
				return fmt.Errorf("keeping the owner of %s: %w", target, err)
			}
		}
		return f.Chmod(mode) // chown can clear permissions
	}))
	if err != nil {
		return "", err
	}
	return note, nil
}

// explain says what an error of replace means, and what to do.
func explain(target string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("writing the configuration file: %w; run the command as the owner of %s (with sudo), or name another file with --config", err, target)
	}
	return fmt.Errorf("writing the configuration file: %w", err)
}

func keptMode(old fs.FileMode) fs.FileMode {
	mode := old & 0o600
	if old&0o004 == 0 {
		mode |= old & 0o040
	}
	return mode | 0o400
}

// replace writes text to a new file that only its owner can access, calls permit, which can change that, renames the
// file to target and syncs the directory, so that the change survives a power failure.
func replace(target string, text []byte, permit func(*os.File) error) (err error) {
	dir := filepath.Dir(target)
	f, err := renameio.NewPendingFile(target, renameio.WithTempDir(dir), renameio.WithStaticPermissions(newMode))
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Cleanup(); err == nil {
			err = cerr
		}
	}()
	if err := permit(f.File); err != nil {
		return err
	}
	if _, err := f.Write(text); err != nil {
		return err
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return err
	}
	return durable.SyncDir(dir)
}
