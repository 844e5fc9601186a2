package service

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// adminGroup is macOS's group of those who may become root anyway.
const adminGroup = 80

// prepare makes the files that the machine's service needs, for the account that
// it runs as. launchd reads no environment file and opens the log as that account
// or as root, depending on its version; the agent reads the rest itself. On a Mac
// the primary group of all people is one, so files are given to the account, not
// shared with its group.
func (l *launchd) prepare() error {
	account := l.options.Account
	if account == "" || account == "root" {
		if err := onlyRootChanges(l.options.Executable); err != nil {
			return err
		}
		account = "root"
	} else if err := reachable(l.options.Executable, account); err != nil {
		return unknownAccount(err, account)
	}
	if err := makeFile(l.options.Config, emptyConfig); err != nil {
		return fmt.Errorf("making the configuration file: %w", err)
	}
	if err := giveFile(l.options.Config, account, true); err != nil {
		return err
	}
	for _, path := range []string{l.EnvironmentFile(), l.logFile()} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("making the directory of %s: %w", path, err)
		}
		if err := makeFile(path, ""); err != nil {
			return fmt.Errorf("making %s: %w", path, err)
		}
		if err := giveFile(path, account, false); err != nil {
			return err
		}
	}
	return nil
}

// makeFile makes a file with that text, for root only, if there is none.
func makeFile(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// giveFile makes a regular file the account's, and nobody else's to read. With
// fromRoot, one that belongs to another user than root is an administrator's own
// arrangement and left alone.
func giveFile(path, account string, fromRoot bool) error {
	owner, err := user.Lookup(account)
	if err != nil {
		return unknownAccount(err, account)
	}
	uid, err := strconv.Atoi(owner.Uid)
	if err != nil {
		return fmt.Errorf("the number of the user %s is none: %w", account, err)
	}
	return changeFile(path, func(file *os.File, mode fs.FileMode, stat *syscall.Stat_t) error {
		if fromRoot && (stat.Uid != 0 || uid == 0) {
			return nil // with root as the account it is root's already, with the mode that root chose
		}
		if err := file.Chown(uid, -1); err != nil {
			return fmt.Errorf("giving %s to %s: %w", path, account, err)
		}
		return file.Chmod(mode & 0o600)
	})
}

func unknownAccount(err error, account string) error {
	if _, unknown := errors.AsType[user.UnknownUserError](err); unknown {
		return fmt.Errorf("there is no user %s on this machine: make it first, or leave out --account", account)
	}
	return err
}

// onlyRootChanges refuses a program that somebody else than root could replace,
// and with it what the machine's service does as root: one below a home directory,
// or in a Homebrew prefix.
func onlyRootChanges(program string) error {
	resolved, err := filepath.EvalSymlinks(program)
	if err != nil {
		return err
	}
	for _, path := range []string{program, resolved} {
		for at := path; ; at = filepath.Dir(at) {
			info, err := os.Stat(at)
			if err != nil {
				return err
			}
			if stat, ok := info.Sys().(*syscall.Stat_t); ok && !rootsOwn(info.Mode(), stat) {
				return fmt.Errorf("the service would run as root, but another user can change %s, and so what %s does: "+
					"put the binaries where only root may write, such as /opt/workflow-agent, or choose --account or --user", at, program)
			}
			if at == filepath.Dir(at) {
				break
			}
		}
	}
	return nil
}

// rootsOwn reports whether only root, or who may become root, can change a file,
// or what root has put into a directory.
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
