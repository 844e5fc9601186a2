package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/kardianos/service"

	"workflowagent/internal/host/ancestors"
)

// needRoot returns an error unless this process runs as root, so that no change is left half done.
func needRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return errors.New("a service of the whole machine needs root: run this with sudo, or use --user for your own service")
}

// ensureAccount creates a missing system account. An account with another name must exist.
func ensureAccount(ctx context.Context, commands runner, name string) error {
	_, err := user.Lookup(name)
	if _, unknown := errors.AsType[user.UnknownUserError](err); !unknown {
		return err
	}
	if name != SystemUser {
		return fmt.Errorf("the user %s does not exist: create it first, or leave out --account", name)
	}
	_, err = commands.run(ctx, "useradd", "--system", "--user-group", "--no-create-home",
		"--home-dir", "/var/lib/workflow-agent", "--shell", "/usr/sbin/nologin", "--comment", displayName, name)
	if err != nil {
		return fmt.Errorf("creating the user %s: %w", name, err)
	}
	return nil
}

// reachable returns why an account other than root cannot run a program.
func reachable(program, account string) error {
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
			return fmt.Errorf("the user %s cannot start %s: %s is closed to it (mode %04o); put the binaries into a directory that every user can enter, such as /opt/workflow-agent, or choose --account or --user",
				account, program, at, mode.Perm())
		}
		return nil
	})
}

func groupExists(name string) error {
	_, err := user.LookupGroup(name)
	if _, unknown := errors.AsType[user.UnknownGroupError](err); unknown {
		return fmt.Errorf("the group %s does not exist: install the engine first", name)
	}
	return err
}

// emptyConfig is the content of the configuration file until configure fills it.
const emptyConfig = `# Configuration of the workflow agent. Fill it in by hand, or with
#   customer-managed-workflow-agent configure
# The service waits until a token is configured.
`

// shareConfig makes the configuration file readable for the account and root only. It creates a
// missing one empty, so that the file has that mode before it holds a secret. It does not touch a
// file that belongs to a user other than root.
func shareConfig(path, account string) error {
	if err := makeFile(path, emptyConfig); err != nil {
		return fmt.Errorf("creating the configuration file: %w", err)
	}
	if account == "root" {
		return nil
	}
	owner, err := user.Lookup(account)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(owner.Gid)
	if err != nil {
		return fmt.Errorf("the group of %s is not a number: %w", account, err)
	}
	return changeFile(path, func(file *os.File, mode fs.FileMode, stat *syscall.Stat_t) error {
		if stat.Uid != 0 {
			return nil // an administrator's own setup
		}
		if err := file.Chown(0, gid); err != nil {
			return fmt.Errorf("giving %s to the group of %s: %w", path, account, err)
		}
		return file.Chmod(mode&0o600 | 0o040)
	})
}

// ErrNoManager is returned on a machine, or in a session, without a service manager.
var ErrNoManager = errors.New("no service manager")

// noManager reports what was detected instead of a service manager, and what to do.
func noManager() error {
	detected := runtime.GOOS + " is not supported"
	if runtime.GOOS == "linux" {
		detected = "systemd does not run this machine"
		if init, err := os.ReadFile("/proc/1/comm"); err == nil {
			detected += fmt.Sprintf(" (process 1 is %s)", strings.TrimSpace(string(init)))
		}
		for _, mark := range []string{"/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io"} {
			if _, err := os.Lstat(mark); err == nil {
				detected = "this is a container (" + mark + " exists)"
			}
		}
	}
	return fmt.Errorf("%w: %s. Start %q with the container or by another supervisor; for example, with supervisord:\n\n"+
		"  [program:%[4]s]\n  command=/PATH/TO/%[4]s run\n  autorestart=unexpected\n  exitcodes=0,2\n  stopsignal=TERM\n  stopwaitsecs=90",
		ErrNoManager, detected, DefaultName+" run", DefaultName)
}

// unsupported has the methods of kardianos/service that this agent does not use: it handles its own
// signals and logs to stderr, which every service manager keeps.
type unsupported struct{}

var errUnsupported = errors.New("not used: the agent runs and logs by itself")

func (unsupported) Run() error { return errUnsupported }

func (unsupported) Logger(chan<- error) (service.Logger, error) { return nil, errUnsupported }

func (unsupported) SystemLogger(chan<- error) (service.Logger, error) { return nil, errUnsupported }

// status maps a state to one of kardianos/service's three.
func (s State) status() service.Status {
	switch s.Active {
	case "active", "activating", "reloading", "deactivating":
		return service.StatusRunning
	}
	return service.StatusStopped
}

// adminGroup is macOS's group of users who may become root.
const adminGroup = 80

// prepare creates the files that the machine's service needs, for its account. launchd reads no
// environment file, and opens the log as that account or as root, depending on its version; the
// agent itself reads its configuration and environment. On a Mac all users have the same primary
// group, so the files belong to the account and are not shared with its group.
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
		return fmt.Errorf("creating the configuration file: %w", err)
	}
	if err := giveFile(l.options.Config, account, true); err != nil {
		return err
	}
	for _, path := range []string{l.EnvironmentFile(), l.logFile()} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("creating the directory of %s: %w", path, err)
		}
		if err := makeFile(path, ""); err != nil {
			return fmt.Errorf("creating %s: %w", path, err)
		}
		if err := giveFile(path, account, false); err != nil {
			return err
		}
	}
	return nil
}

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

// giveFile gives a regular file to the account, unreadable for others. With fromRoot, it does not
// touch a file that belongs to a user other than root, an administrator's own setup.
func giveFile(path, account string, fromRoot bool) error {
	owner, err := user.Lookup(account)
	if err != nil {
		return unknownAccount(err, account)
	}
	uid, err := strconv.Atoi(owner.Uid)
	if err != nil {
		return fmt.Errorf("the user ID of %s is not a number: %w", account, err)
	}
	return changeFile(path, func(file *os.File, mode fs.FileMode, stat *syscall.Stat_t) error {
		if fromRoot && (stat.Uid != 0 || uid == 0) {
			return nil // for root the file already has the right owner, and the mode that root chose
		}
		if err := file.Chown(uid, -1); err != nil {
			return fmt.Errorf("giving %s to %s: %w", path, account, err)
		}
		return file.Chmod(mode & 0o600)
	})
}

func unknownAccount(err error, account string) error {
	if _, unknown := errors.AsType[user.UnknownUserError](err); unknown {
		return fmt.Errorf("the user %s does not exist: create it first, or leave out --account", account)
	}
	return err
}

// onlyRootChanges rejects a program that a user other than root could replace, such as one in a
// home directory or a Homebrew prefix: that user could then run code as root through the machine's
// service.
func onlyRootChanges(program string) error {
	resolved, err := filepath.EvalSymlinks(program)
	if err != nil {
		return err
	}
	for _, path := range []string{program, resolved} {
		err := ancestors.Walk(path, func(at string, mode fs.FileMode, stat *syscall.Stat_t) error {
			if !rootsOwn(mode, stat) {
				return fmt.Errorf("the service would run as root, but another user can change %s, and so what %s does: "+
					"put the binaries where only root may write, such as /opt/workflow-agent, or choose --account or --user", at, program)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// rootsOwn reports whether only root, or users who may become root, can change a file.
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
