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
	if err := replace(target, text, mode, old); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return "", fmt.Errorf("writing the configuration file: %w; run the command as the owner of %s (with sudo), or name another file with --config", err, target)
		}
		return "", fmt.Errorf("writing the configuration file: %w", err)
	}
	return note, nil
}

func keptMode(old fs.FileMode) fs.FileMode {
	mode := old & 0o600
	if old&0o004 == 0 {
		mode |= old & 0o040
	}
	return mode | 0o400
}

// replace writes text to a new file, renames it to target and syncs the directory, so that the
// change survives a power failure.
func replace(target string, text []byte, mode fs.FileMode, old fs.FileInfo) (err error) {
	dir := filepath.Dir(target)
	f, err := renameio.NewPendingFile(target, renameio.WithTempDir(dir), renameio.WithStaticPermissions(mode))
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Cleanup(); err == nil {
			err = cerr
		}
	}()
	if old != nil {
		if stat, ok := old.Sys().(*syscall.Stat_t); ok {
			if err := f.Chown(int(stat.Uid), int(stat.Gid)); err != nil {
				return fmt.Errorf("keeping the owner of %s: %w", target, err)
			}
			// chown can clear permissions.
			if err := f.Chmod(mode); err != nil {
				return err
			}
		}
	}
	if _, err := f.Write(text); err != nil {
		return err
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return err
	}
	return durable.SyncDir(dir)
}
