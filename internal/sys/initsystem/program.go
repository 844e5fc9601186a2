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
