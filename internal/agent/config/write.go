package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/renameio/v2"

	"workflowagent/internal/sys/durable"
)

const newFileMode = fs.FileMode(0o600)

// Target returns the path of the file to write: the value of --config, the existing file that an
// agent would read, or the path of a new file. For root, a new file is in /etc. For other users, it
// is in Homebrew's etc directory or the install script's directory if the binary is installed
// there, and otherwise in the home directory.
func Target(o LoadOptions) (string, error) {
	if o.Path != "" {
		return o.Dirs().Absolute(o.Path)
	}
	found, err := Find(o)
	switch {
	case err != nil:
		return "", err
	case found.Path != "":
		return found.Path, nil
	case o.UID == 0 && o.Etc != "":
		return filepath.Join(o.Etc, FileName), nil
	case o.brewEtc() != "":
		return filepath.Join(o.brewEtc(), FileName), nil
	case !filepath.IsAbs(o.Home):
		return "", errors.New("the home directory for the configuration file is unknown: name the file with --config")
	case strings.HasPrefix(o.Binary, filepath.Join(o.Home, ".pulumi")+string(filepath.Separator)):
		dir := cmp.Or(o.installRoot(), filepath.Dir(o.Binary))
		return filepath.Join(dir, FileName), nil
	}
	return filepath.Join(o.Home, FileName), nil
}

// ReadText returns the text of a configuration file that is about to be changed, after the same
// checks as [Load]. It returns nil if the file does not exist.
func ReadText(path string, o LoadOptions) ([]byte, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	data, _, err := readFile(path, o.UID)
	if data == nil && err == nil {
		data = []byte{}
	}
	return data, err
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
	mode := newFileMode
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
