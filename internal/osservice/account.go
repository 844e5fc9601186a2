package osservice

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"runtime"

	"github.com/kardianos/service"
)

// needRoot refuses to begin what only root can end.
func needRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return errors.New("a service of the whole machine needs root: run this with sudo, or use --user for a service of your own")
}

// ensureAccount makes the system account that the service runs as, if it is not
// there. Another name than ours must exist: whoever chose it knows why.
func ensureAccount(ctx context.Context, commands runner, name string) error {
	_, err := user.Lookup(name)
	var unknown user.UnknownUserError
	if !errors.As(err, &unknown) {
		return err
	}
	if name != SystemUser {
		return fmt.Errorf("there is no user %s on this machine: make it first, or leave the choice to the installation", name)
	}
	_, err = commands.run(ctx, "useradd", "--system", "--user-group", "--no-create-home",
		"--home-dir", "/var/lib/workflow-agent", "--shell", "/usr/sbin/nologin", "--comment", displayName, name)
	if err != nil {
		return fmt.Errorf("making the user %s: %w", name, err)
	}
	return nil
}

func groupExists(name string) error {
	_, err := user.LookupGroup(name)
	var unknown user.UnknownGroupError
	if errors.As(err, &unknown) {
		return fmt.Errorf("there is no group %s on this machine: install the engine first", name)
	}
	return err
}

// noManager says why there is no service manager, and what to do instead.
func noManager() error {
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		return fmt.Errorf("services are not supported on %s: start %s run by other means", runtime.GOOS, DefaultName)
	}
	for _, mark := range []string{"/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io"} {
		if _, err := os.Lstat(mark); err == nil {
			return fmt.Errorf("a container has no service manager: let it start %q itself", DefaultName+" run")
		}
	}
	return fmt.Errorf("systemd does not run this machine: start %q by the init system that does", DefaultName+" run")
}

// unsupported are the methods of kardianos/service that this agent does not use:
// it handles its own signals and logs to stderr, which every service manager keeps.
type unsupported struct{}

// errUnsupported is the answer of the methods that have no use here.
var errUnsupported = errors.New("the agent runs and logs by itself")

// Run is not used: the agent's run command is the service.
func (unsupported) Run() error { return errUnsupported }

// Logger is not used.
func (unsupported) Logger(chan<- error) (service.Logger, error) { return nil, errUnsupported }

// SystemLogger is not used.
func (unsupported) SystemLogger(chan<- error) (service.Logger, error) { return nil, errUnsupported }

// status puts a state into the three words of kardianos/service.
func (s State) status() service.Status {
	switch s.Active {
	case "active", "activating", "reloading", "deactivating":
		return service.StatusRunning
	}
	return service.StatusStopped
}
