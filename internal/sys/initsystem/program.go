package initsystem

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"workflowagent/internal/sys/ancestors"
)

// Executable returns the path that a service must start: the path of this process's program. It
// keeps symbolic links, so that the service follows an upgrade that changes a link.
func Executable() (string, error) {
	real, err := os.Executable()
	if err != nil {
		if filepath.IsAbs(os.Args[0]) {
			return os.Args[0], nil // /proc is missing, as in an image build
		}
		return "", fmt.Errorf("finding this program's binary: %w", err)
	}
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		return real, nil //nolint:nilerr // started by a name that is not a path: the real one will do
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", fmt.Errorf("finding this program's binary: %w", err)
	}
	if resolved, err := filepath.EvalSymlinks(path); err != nil || resolved != real {
		return real, nil //nolint:nilerr // another file of that name was found
	}
	return path, nil
}

// Reachable returns an error with the reason if an account cannot run the program, and with the advice.
func Reachable(program, account, advice string) error {
	owner, err := user.Lookup(account)
	if err != nil {
		return err
	}
	path, err := filepath.EvalSymlinks(program)
	if err != nil {
		return err
	}
	return ancestors.Walk(path, func(at string, mode fs.FileMode, stat *syscall.Stat_t) error {
		bits := mode.Perm() & 0o001
		switch {
		case owner.Uid == "0":
			bits = 1
		case strconv.FormatUint(uint64(stat.Uid), 10) == owner.Uid:
			bits = mode.Perm() & 0o100
		case strconv.FormatUint(uint64(stat.Gid), 10) == owner.Gid:
			bits = mode.Perm() & 0o010
		}
		if bits == 0 {
			return fmt.Errorf("the user %s cannot start %s: %s is closed to it (mode %04o); %s", account, program, at, mode.Perm(), advice)
		}
		return nil
	})
}

// OnlyRootChanges returns an error with the advice if a user other than root could replace the file or
// directory at path, for example in a home directory or a Homebrew prefix. That user could otherwise run
// code as the service's account, or as root.
func OnlyRootChanges(path, advice string) error {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for _, path := range []string{path, resolved} {
		err := ancestors.Walk(path, func(at string, mode fs.FileMode, stat *syscall.Stat_t) error {
			if !rootsOwn(mode, stat) {
				return fmt.Errorf("another user can change %s, and so what %s does: %s", at, path, advice)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// adminGroup is the group of macOS users who may become root.
const adminGroup = 80

// rootsOwn reports whether a file with the given mode and owner can be changed only by root or by
// users who may become root. In a directory with the sticky bit, other users cannot replace root's
// files.
func rootsOwn(mode fs.FileMode, stat *syscall.Stat_t) bool {
	switch {
	case stat.Uid != 0:
		return false
	case mode.IsDir() && mode&fs.ModeSticky != 0:
		return true
	case mode.Perm()&0o002 != 0:
		return false
	}
	return mode.Perm()&0o020 == 0 || stat.Gid == 0 || stat.Gid == adminGroup
}
