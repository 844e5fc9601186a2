package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/kardianos/service"

	"workflowagent/internal/sys/initsystem"
)

// systemdSystem is the systemd implementation of kardianos/service's System.
type systemdSystem struct{ options Options }

func (systemdSystem) String() string { return "linux-systemd" }

// Detect implements kardianos/service's System.
func (systemdSystem) Detect() bool { return initsystem.Booted() }

func (systemdSystem) Interactive() bool { return os.Getenv("INVOCATION_ID") == "" }

func (s systemdSystem) New(service.Interface, *service.Config) (service.Service, error) {
	return newSystemd(s.options, initsystem.Exec{})
}

type systemd struct {
	unsupported
	options  Options
	commands initsystem.Runner
	units    string // directory of the unit
	settings string // directory of the environment file
	packaged bool   // whether the unit belongs to a package
}

// stateName is the name of the directory in /var/lib that all services of the machine share.
const stateName = "workflow-agent"

// The directories for units. Units in the administrator's directory take precedence over packaged
// units.
const (
	adminUnits   = "/etc/systemd/system"
	packageUnits = "/usr/lib/systemd/system"
)

func newSystemd(o Options, commands initsystem.Runner) (*systemd, error) {
	s := &systemd{options: o, commands: commands, units: adminUnits, settings: "/etc"}
	switch {
	case o.User:
		config, err := os.UserConfigDir()
		if err != nil {
			return nil, fmt.Errorf("finding your configuration directory: %w; set HOME", err)
		}
		s.units, s.settings = filepath.Join(config, "systemd", "user"), config
	case o.Packaged || s.ofPackage(adminUnits, packageUnits):
		s.units, s.packaged = packageUnits, true
	}
	if !o.User && o.Account == "" {
		s.options.Account = SystemUser
	}
	return s, nil
}

func (s *systemd) String() string { return displayName }

func (s *systemd) Platform() string { return systemdSystem{}.String() }

func (s *systemd) File() string { return filepath.Join(s.units, s.unit()) }

func (s *systemd) EnvironmentFile() string { return filepath.Join(s.settings, s.options.Name+".env") }

func (s *systemd) unit() string { return s.options.Name + ".service" }

// ofPackage reports whether the service belongs to a package. The unit of such a service is updated
// in the package's directory, because a copy among the administrator's units would hide the units
// of later package versions. A service whose binary is not from the package gets its own unit.
func (s *systemd) ofPackage(admin, packages string) bool {
	if info, err := os.Lstat(filepath.Join(admin, s.unit())); err == nil && info.Mode().IsRegular() {
		return false // a link at this path is a mask
	}
	_, err := os.Lstat(filepath.Join(packages, s.unit()))
	return err == nil && (s.options.Executable == "" || strings.HasPrefix(resolved(s.options.Executable), "/usr/"))
}

// resolved returns the path with symbolic links resolved, or the unchanged path if that fails.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

func (s *systemd) manager() initsystem.Systemd {
	return initsystem.Systemd{Commands: s.commands, User: s.options.User}
}

func (s *systemd) ctl(ctx context.Context, args ...string) (string, error) {
	return s.manager().Ctl(ctx, args...)
}

// Start starts the service and returns when the service is ready.
func (s *systemd) Start() error { return s.act("start") }

// Stop stops the service. The service's jobs continue.
func (s *systemd) Stop() error { return s.act("stop") }

// Restart stops the service and starts it again. The service's jobs continue.
func (s *systemd) Restart() error { return s.act("restart") }

func (s *systemd) act(verb string) error {
	if err := s.rights(); err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := s.Describe(ctx); err != nil {
		return err
	}
	if _, err := s.ctl(ctx, verb, s.unit()); err != nil {
		return fmt.Errorf("%w; for its own output: %s service logs%s", err, DefaultName, s.options.flags())
	}
	return nil
}

func (s *systemd) Describe(ctx context.Context) (State, error) {
	if err := s.session(); err != nil {
		return State{}, err
	}
	state, err := s.manager().Describe(ctx, s.unit())
	if errors.Is(err, initsystem.ErrNotInstalled) {
		err = service.ErrNotInstalled
	}
	state.Installed = s.File()
	return state, err
}

func (s *systemd) Logs(ctx context.Context, out io.Writer, lines int, follow bool) error {
	return s.manager().Logs(ctx, out, s.unit(), lines, follow)
}

func (s *systemd) rights() error {
	if s.options.User {
		return s.session()
	}
	return needRoot()
}

// session sets XDG_RUNTIME_DIR, with which systemctl finds the user's systemd, if no login session
// has set it.
func (s *systemd) session() error {
	if !s.options.User || os.Getenv("XDG_RUNTIME_DIR") != "" {
		return nil
	}
	dir := fmt.Sprintf("/run/user/%d", os.Getuid())
	if exists(dir+"/bus") || exists(dir+"/systemd/private") {
		return os.Setenv("XDG_RUNTIME_DIR", dir)
	}
	return fmt.Errorf("%w: no session of systemd, XDG_RUNTIME_DIR is not set; %s", ErrNoManager, initsystem.HowToSession())
}
