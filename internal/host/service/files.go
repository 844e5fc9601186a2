package service

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"

	"workflowagent/internal/sys/durable"
	"workflowagent/internal/sys/initsystem"
)

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// SetEnvironment sets variables in a service's environment file. It removes a variable whose
// value is empty. The other lines and the file's owner do not change. Only the service's account
// can read the file, because proxy variables can contain passwords.
func SetEnvironment(path string, variables map[string]string) error {
	before, owner, err := readOwned(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the service's environment: %w", err)
	}
	text, err := editEnvironment(string(before), variables)
	if err != nil {
		return fmt.Errorf("changing %s: %w", path, err)
	}
	if before == nil {
		_, err = initsystem.ReplaceFile(path, []byte(text), 0o600)
	} else {
		err = rewriteFile(path, []byte(text), owner)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// readOwned reads a file's content and owner through one descriptor, so that both belong to the
// same file.
func readOwned(path string) (text []byte, owner *syscall.Stat_t, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is not a regular file", path)
	}
	text, err = io.ReadAll(file)
	return text, owner, err
}

func rewriteFile(path string, text []byte, owner *syscall.Stat_t) (err error) {
	file, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Cleanup()) }()
	if int(owner.Uid) != os.Geteuid() {
		if err := file.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
			return err
		}
	}
	if _, err := file.Write(text); err != nil {
		return err
	}
	if err := file.CloseAtomicallyReplace(); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}
