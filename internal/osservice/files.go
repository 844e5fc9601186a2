package osservice

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"
)

// replaceFile puts text in place of the file's content by one rename, unless it
// is there already. The returned function puts back what was there before.
func replaceFile(path string, text []byte, mode fs.FileMode) (undo func() error, err error) {
	before, err := os.ReadFile(path)
	existed := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if existed && bytes.Equal(before, text) {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := renameio.WriteFile(path, text, mode, renameio.WithTempDir(filepath.Dir(path))); err != nil {
		return nil, err
	}
	return func() error {
		if !existed {
			return os.Remove(path)
		}
		return renameio.WriteFile(path, before, mode, renameio.WithTempDir(filepath.Dir(path)))
	}, nil
}

// SetEnvironment changes variables in the environment file of a service; an empty
// value removes one. Other lines and the file's owner stay as they are. The file is
// for the service's account only, because proxies and the like may hold passwords.
func SetEnvironment(s Service, variables map[string]string) error {
	return setEnvironment(s.EnvironmentFile(), variables)
}

func setEnvironment(path string, variables map[string]string) error {
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the service's environment: %w", err)
	}
	text, err := editEnvironment(string(before), variables)
	if err != nil {
		return fmt.Errorf("changing %s: %w", path, err)
	}
	if before == nil {
		_, err = replaceFile(path, []byte(text), 0o600)
	} else {
		err = rewriteFile(path, []byte(text))
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// rewriteFile puts text in place of a file's content by one rename. Its owner
// stays.
func rewriteFile(path string, text []byte) (err error) {
	file, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Cleanup()) }()
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
			if err := file.Chown(int(stat.Uid), int(stat.Gid)); err != nil {
				return err
			}
		}
	}
	if _, err := file.Write(text); err != nil {
		return err
	}
	return file.CloseAtomicallyReplace()
}
