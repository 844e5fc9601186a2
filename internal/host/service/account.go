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

	"workflowagent/internal/sys/initsystem"
)

// needRoot returns an error unless this process runs as root, so that a command fails before it
// changes anything.
func needRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return errors.New("a service of the whole machine needs root: run this with sudo, or use --user for your own service")
}

// ensureAccount creates the default system account if it is missing. An account with another name
// must already exist.
func ensureAccount(ctx context.Context, commands initsystem.Runner, name string) error {
	_, err := user.Lookup(name)
	if _, unknown := errors.AsType[user.UnknownUserError](err); !unknown {
		return err
	}
	if name != SystemUser {
		return fmt.Errorf("the user %s does not exist: create it first, or leave out --account", name)
	}
	_, err = commands.Run(ctx, "useradd", "--system", "--user-group", "--no-create-home",
		"--home-dir", "/var/lib/workflow-agent", "--shell", "/usr/sbin/nologin", "--comment", displayName, name)
	if err != nil {
		return fmt.Errorf("creating the user %s: %w", name, err)
	}
	return nil
}

func groupExists(name string) error {
	_, err := user.LookupGroup(name)
	if _, unknown := errors.AsType[user.UnknownGroupError](err); unknown {
		return fmt.Errorf("the group %s does not exist: install the engine first", name)
	}
	return err
}

// reachAdvice is what to do if the account cannot start the program.
const reachAdvice = "put the binaries into a directory that every user can enter, such as /opt/workflow-agent, or choose --account or --user"

// emptyConfig is the initial content of the configuration file, before configure writes the
// settings.
const emptyConfig = `# Configuration of the workflow agent. Fill it in by hand, or with
#   customer-managed-workflow-agent configure
# The service waits until a token is configured.
`

// shareConfig makes the configuration file readable for only the account and root. If the file is
// missing, shareConfig creates it without settings, so that the file has the right mode before it
// contains a secret. It does not change a file that belongs to a user other than root.
func shareConfig(path, account string) error {
	if err := initsystem.MakeFile(path, emptyConfig); err != nil {
		return fmt.Errorf("creating the configuration file: %w", err)
	}
	if account == "root" {
		return nil
	}
	return initsystem.ShareFile(path, account)
}

// ErrNoManager is returned if the machine or the session has no service manager.
var ErrNoManager = errors.New("no service manager")

// noManager returns an [ErrNoManager] that reports what was detected instead of a service manager,
// and what to do.
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

// unsupported provides the methods of kardianos/service that this agent does not use. The agent
// handles its own signals and logs to standard error, which every service manager records.
type unsupported struct{}

var errUnsupported = errors.New("not used: the agent runs and logs by itself")

func (unsupported) Run() error { return errUnsupported }

func (unsupported) Logger(chan<- error) (service.Logger, error) { return nil, errUnsupported }

func (unsupported) SystemLogger(chan<- error) (service.Logger, error) { return nil, errUnsupported }

// Status is less than [Service.Describe].
func (unsupported) Status() (service.Status, error) { return service.StatusUnknown, errUnsupported }

// prepare creates the files that the machine's service needs, and makes the service's account their
// owner. launchd does not read environment files, so the agent itself reads its configuration and
// its environment. Depending on its version, launchd opens the log as that account or as root. All
// users of a Mac have the same primary group, so the files are not shared with the account's group.
func (l *launchd) prepare() error {
	account := l.options.Account
	if account == "" || account == "root" {
		err := initsystem.OnlyRootChanges(l.options.Executable, "put the binaries where only root may write, such as /opt/workflow-agent, or choose --account or --user")
		if err != nil {
			return fmt.Errorf("the service would run as root, but %w", err)
		}
		account = "root"
	} else if err := initsystem.Reachable(l.options.Executable, account, reachAdvice); err != nil {
		return unknownAccount(err, account)
	}
	if err := initsystem.MakeFile(l.options.Config, emptyConfig); err != nil {
		return fmt.Errorf("creating the configuration file: %w", err)
	}
	if err := giveFile(l.options.Config, account, true); err != nil {
		return err
	}
	for _, path := range []string{l.EnvironmentFile(), l.logFile()} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("creating the directory of %s: %w", path, err)
		}
		if err := initsystem.MakeFile(path, ""); err != nil {
			return fmt.Errorf("creating %s: %w", path, err)
		}
		if err := giveFile(path, account, false); err != nil {
			return err
		}
	}
	return nil
}

// giveFile makes the account the owner of a regular file and removes all permissions of other
// users. With fromRoot, it does not change a file that belongs to a user other than root, because
// such a file is an administrator's own configuration.
func giveFile(path, account string, fromRoot bool) error {
	owner, err := user.Lookup(account)
	if err != nil {
		return unknownAccount(err, account)
	}
	uid, err := strconv.Atoi(owner.Uid)
	if err != nil {
		return fmt.Errorf("the user ID of %s is not a number: %w", account, err)
	}
	return initsystem.ChangeFile(path, func(file *os.File, mode fs.FileMode, stat *syscall.Stat_t) error {
		if fromRoot && (stat.Uid != 0 || uid == 0) {
			return nil // if the account is root, the file already has the right owner, and root has chosen the mode
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
