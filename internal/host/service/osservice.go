// Package service registers the agent with the operating system's service manager and controls the
// service. It supports systemd on Linux and launchd on macOS, for the whole machine or for one
// user.
//
// It adds its own two systems to kardianos/service. The built-in systems write units that restart
// only after two minutes, reject an upgrade, and leave partial files after an error. In this
// package, an installation can also be an upgrade: it renders the file, compares it and replaces it
// with a single rename. A failed installation is rolled back. Both systems compile on every
// platform, so that tests can check the command lines of each on the other.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/kardianos/service"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/sys/initsystem"
)

// DefaultName is the default name of the service.
const DefaultName = "customer-managed-workflow-agent"

// SystemUser is the default account of a service for the whole machine.
const SystemUser = "workflow-agent"

// SystemConfig is the machine's configuration file. The former name applies if only a file with
// that name exists.
const (
	SystemConfig    = "/etc/pulumi-workflow-agent.yaml"
	oldSystemConfig = "/etc/pulumi-deployment-agent.yaml"
)

// Profile selects the sandbox of a systemd service.
type Profile string

// The profiles. Jobs of the process executor are children of the agent and share its sandbox, so
// that sandbox must be less strict. Containers are children of the engine.
const (
	ProfileDocker  Profile = "docker"
	ProfileProcess Profile = "process"
)

// Options describe a service.
type Options struct {
	Name       string  // "" means DefaultName
	User       bool    // for the current user instead of the whole machine
	Account    string  // account of a service of the machine; "" means SystemUser on Linux and root on macOS
	Profile    Profile // "" means ProfileDocker
	Executable string  // absolute path of the agent's executable
	// Config is the absolute path of the configuration file. If it is "", a user's service searches
	// for the file, and a service of the machine reads SystemConfig. A service of the machine must
	// not read a file that its own account, or its jobs with the process executor, could write to.
	Config string
	// Docker gives the service's account access to the engine's socket, which is equivalent to root
	// access.
	Docker bool
	// Packaged makes Install write only the unit, in the package manager's directory, so that an
	// administrator can mask or override it. The package's scripts enable and start the service.
	// This works even without a service manager, as in an image build.
	Packaged bool
	// Updates contains the paths with which the service updates itself. It is nil if a package
	// manager or the operator updates the agent.
	Updates *Updates
}

// Service is a service on this machine. Of the kardianos methods, Install registers or upgrades the
// service without starting it, and Uninstall stops and removes it.
type Service interface {
	service.Service
	// Describe returns the state of the service, or [service.ErrNotInstalled] if it is missing.
	Describe(ctx context.Context) (State, error)
	// Logs writes the last lines, oldest first. If follow is true, it then writes new lines until
	// ctx is canceled.
	Logs(ctx context.Context, out io.Writer, lines int, follow bool) error
	// Enable makes the service start at boot or with the user's session.
	Enable(ctx context.Context) error
	// File returns the path of the unit or the property list.
	File() string
	// EnvironmentFile returns the path of the service's environment file.
	EnvironmentFile() string
}

// State is the service manager's report about a service.
type State = initsystem.State

// Open returns the service on this machine's service manager. It returns [ErrNoManager] if there is
// none.
func Open(o Options) (Service, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, config.Invalid(err)
	}
	if o.Packaged {
		return newSystemd(o, initsystem.Exec{})
	}
	service.ChooseSystem(systemdSystem{o}, launchdSystem{o})
	s, err := service.New(noProgram{}, &service.Config{Name: o.Name, DisplayName: displayName, Description: description})
	if errors.Is(err, service.ErrNoServiceSystemDetected) {
		return nil, noManager()
	}
	if err != nil {
		return nil, fmt.Errorf("opening the service %s: %w", o.Name, err)
	}
	return s.(Service), nil //nolint:forcetypeassert // the two systems above create nothing else
}

// Explain returns a service's error. If the service is not installed, it adds advice.
func Explain(s Service, err error) error {
	if errors.Is(err, service.ErrNotInstalled) {
		return fmt.Errorf("the service is not installed, %s is missing: see %s service install --help (a user's service needs --user with every command)", s.File(), DefaultName)
	}
	return err
}

const (
	displayName = "Customer-managed workflow agent"
	description = "Runs Pulumi deployments inside your own network"
)

func (o Options) withDefaults() (Options, error) {
	o.Name = cmp.Or(o.Name, DefaultName)
	o.Profile = cmp.Or(o.Profile, ProfileDocker)
	if o.Config == "" && !o.User {
		o.Config = firstFile(SystemConfig, oldSystemConfig)
	}
	switch {
	case strings.Trim(o.Name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" || strings.HasPrefix(o.Name, "-"):
		return o, fmt.Errorf("the service name %q may have only letters, digits, hyphens, underscores and dots", o.Name)
	case o.Profile != ProfileDocker && o.Profile != ProfileProcess:
		return o, fmt.Errorf("unknown profile %q: use %s or %s", o.Profile, ProfileDocker, ProfileProcess)
	case o.User && o.Account != "":
		return o, errors.New("a user's service runs as that user: leave out the account")
	case o.Executable != "" && !filepath.IsAbs(o.Executable):
		return o, fmt.Errorf("the binary's path %q is not absolute", o.Executable)
	case o.Config != "" && !filepath.IsAbs(o.Config):
		return o, fmt.Errorf("the configuration's path %q is not absolute", o.Config)
	}
	for _, path := range []string{o.Executable, o.Config, o.Account} {
		if strings.ContainsAny(path, "\n\r\x00") {
			return o, fmt.Errorf("%q has a line break, which no service manager accepts", path)
		}
	}
	return o, o.Updates.check()
}

func (o Options) flags() string {
	var flags string
	if o.User {
		flags = " --user"
	}
	if o.Name != DefaultName {
		flags += " --name " + o.Name
	}
	return flags
}

func firstFile(names ...string) string {
	for _, name := range names {
		if _, err := os.Lstat(name); err == nil {
			return name
		}
	}
	return names[0]
}

// noProgram implements kardianos/service's Interface. It does nothing, because the agent's run
// command handles its own signals.
type noProgram struct{}

func (noProgram) Start(service.Service) error { return nil }
func (noProgram) Stop(service.Service) error  { return nil }
