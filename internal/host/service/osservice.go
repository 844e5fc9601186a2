// Package service registers the agent with the operating system's service manager and controls it
// there: systemd on Linux, launchd on macOS, for the whole machine or for one user.
//
// It plugs its own two systems into kardianos/service, whose built-in ones write units that restart
// after two minutes, refuse an upgrade, and leave partial files after an error. Here an install is
// also the upgrade: the file is rendered, compared, and swapped by one rename; an install that
// fails is rolled back. Both systems compile on every platform, so that the command lines of each
// can be tested on the other.
package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kardianos/service"

	"workflowagent/internal/agent/config"
)

// DefaultName is the service's default name.
const DefaultName = "customer-managed-workflow-agent"

// SystemUser is the default account of a service for the whole machine.
const SystemUser = "workflow-agent"

// SystemConfig is the machine's configuration file; the former name applies if only that exists.
const (
	SystemConfig    = "/etc/pulumi-workflow-agent.yaml"
	oldSystemConfig = "/etc/pulumi-deployment-agent.yaml"
)

// Profile is the sandbox of a systemd service.
type Profile string

// The profiles. Jobs of the process executor are children of the agent and share its sandbox, so it
// must be looser; containers are children of the engine.
const (
	ProfileDocker  Profile = "docker"
	ProfileProcess Profile = "process"
)

// Options describe a service.
type Options struct {
	Name       string  // "": DefaultName
	User       bool    // for the current user instead of the whole machine
	Account    string  // of a service of the machine; "": SystemUser on Linux, root on macOS
	Profile    Profile // "": ProfileDocker
	Executable string  // absolute path of the agent's binary
	// Config is the absolute path of the configuration file. "" lets a user's service search for
	// it; a service of the machine reads SystemConfig, and no file that its own account, or its
	// jobs with the process executor, could write.
	Config string
	// Docker lets the service's account use the engine's socket, which is equivalent to root.
	Docker bool
	// Packaged writes the unit to the package manager's directory, so that an administrator can
	// mask or override it, and does nothing else: the package's scripts enable and start it, even
	// without a service manager, as in an image build.
	Packaged bool
	// Updates let the service update itself; nil if a package manager or the operator does.
	Updates *Updates
}

// Service is a service on this machine. Of the kardianos methods, Install registers or upgrades
// without starting, and Uninstall stops and removes.
type Service interface {
	service.Service
	// Describe returns the state of the service, or [service.ErrNotInstalled] if it is missing.
	Describe(ctx context.Context) (State, error)
	// Logs writes the last lines, oldest first, and with follow the new ones until ctx ends.
	Logs(ctx context.Context, out io.Writer, lines int, follow bool) error
	// Enable has the service start at boot, or with the user's session.
	Enable(ctx context.Context) error
	// File returns the path of the unit or property list.
	File() string
	// EnvironmentFile returns the path of the service's environment file.
	EnvironmentFile() string
}

// State is what a service manager reports about a service.
type State struct {
	Active    string    `json:"active"`           // active, activating, deactivating, inactive or failed
	Detail    string    `json:"detail,omitempty"` // in the words of the service manager
	Enabled   string    `json:"enabled,omitempty"`
	PID       int       `json:"pid,omitempty"`
	Restarts  int       `json:"restarts"` // since it was started by hand or at boot
	Since     time.Time `json:"since,omitzero"`
	LastExit  string    `json:"lastExit,omitempty"`
	Installed string    `json:"file"`
}

// callTimeout limits each call of systemctl or launchctl. A stop takes up to the unit's timeout.
const callTimeout = 90 * time.Second

// Open returns the service on this machine's service manager, or [ErrNoManager] without one.
func Open(o Options) (Service, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, config.Invalid(err)
	}
	if o.Packaged {
		return newSystemd(o, execRunner{})
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

// Explain returns an error of a service, with advice if the service is not installed.
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
	if o.Name == "" {
		o.Name = DefaultName
	}
	if o.Profile == "" {
		o.Profile = ProfileDocker
	}
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

// noProgram satisfies kardianos/service: the agent's run command handles its own signals.
type noProgram struct{}

func (noProgram) Start(service.Service) error { return nil }
func (noProgram) Stop(service.Service) error  { return nil }
