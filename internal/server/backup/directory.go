package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/sys/durable"
	"workflowagent/internal/sys/filelock"
	"workflowagent/internal/sys/pathowner"
)

// openTarget returns the absolute path of the directory that receives backups. It creates the directory if it does not
// exist.
func openTarget(dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", fault.Invalid("%q is not an absolute path", dir)
	}
	dir = filepath.Clean(dir)
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = durable.SyncDir(filepath.Dir(dir))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fault.Wrap(fault.KindInvalid, err, "creating the directory for backups as user %d, who runs the server: %v; create it, let that user own it, and let the service write to it (ReadWritePaths=)", os.Geteuid(), err)
	}
	owner, err := checkPrivate(dir)
	if err != nil {
		return "", err
	}
	if owner != os.Geteuid() {
		return "", fault.Invalid("%s belongs to user %d, but the server runs as user %d: let that user own it, with chown %d %s", dir, owner, os.Geteuid(), os.Geteuid(), dir)
	}
	return dir, nil
}

// checkPrivate returns the owner of a directory, and an error if other users can read it, write to it or replace it.
func checkPrivate(dir string) (owner int, err error) {
	found, err := pathowner.OfVolume(dir, os.Getegid())
	if err != nil {
		return 0, fault.Wrap(fault.KindInvalid, err, "not using the directory of backups: %v", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return 0, err
	}
	if !info.IsDir() {
		return 0, fault.Invalid("%s is not a directory", dir)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return 0, fault.Invalid("other users may read or write %s (mode %04o), and backups contain the states and tokens of everyone: run chmod 700 %s, and find out who has read it", dir, info.Mode().Perm(), dir)
	}
	return found.UID, nil
}

// lockTime is more than the time for which another process looks at the lock.
const lockTime = time.Second

// lockDir ensures that only one backup is written to a directory at a time.
func lockDir(ctx context.Context, dir string) (*filelock.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	lock, err := filelock.Wait(ctx, filepath.Join(dir, lockName))
	if held, ok := errors.AsType[*filelock.HeldError](err); ok {
		return nil, fault.Conflict("another backup to %s is being written (%v): wait until it has ended", dir, held)
	}
	if errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission) {
		return nil, fault.Wrap(fault.KindInvalid, err, "user %d, who runs the server, may not write to %s: %v; let that user own it, and let the service write to it (ReadWritePaths=)", os.Geteuid(), dir, err)
	}
	return lock, fault.While(err, "locking the directory of backups")
}

// removePartial removes what interrupted backups have left.
func removePartial(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading the directory of backups: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), partialPrefix) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("removing the rest of an interrupted backup: %w", err)
		}
	}
	return nil
}
