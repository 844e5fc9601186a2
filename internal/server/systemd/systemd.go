// Package systemd makes the server a service of systemd. The server's packages contain the unit and the
// other files of this package; for an archive, [Service.Install] writes the same texts.
package systemd

import (
	"context"
	_ "embed" // for the files
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"workflowagent/internal/sys/initsystem"
)

// Name is the name of the service, of its account and of its directories.
const Name = "workflow-server"

const (
	unit         = Name + ".service"
	adminUnits   = "etc/systemd/system"
	packageUnits = "usr/lib/systemd/system"
	dataDir      = "var/lib/" + Name
)

// The files are the same in packages and archives, except for the program's path in the unit.
var (
	//go:embed unit.tmpl
	unitText string
	//go:embed sysusers.conf
	sysusersText []byte
	//go:embed tmpfiles.conf
	tmpfilesText []byte
	// configText is the first configuration. It must not change between releases: package managers
	// would ask operators who have changed their file.
	//go:embed workflow-server.yaml
	configText string
)

// mark is a part of each unit of this package.
const mark = `"workflow-server service install"`

// Service is the service on this machine.
type Service struct {
	// Executable is the absolute path of the server's program.
	Executable string

	commands initsystem.Runner
	root     string // of the machine's files
	account  string
}

// startTimeout limits each call to systemctl. The service itself asks systemd for more time while it updates
// the schema.
const startTimeout = 24 * time.Hour

// Open returns the service of this program.
func Open() (*Service, error) {
	executable, err := initsystem.Executable()
	if err != nil {
		return nil, err
	}
	return At(executable), nil
}

// At returns the service of a program, which is an absolute path.
func At(executable string) *Service {
	return &Service{Executable: executable, commands: initsystem.Exec{Timeout: startTimeout}, root: "/", account: Name}
}

func (s *Service) path(name string) string { return filepath.Join(s.root, name) }

// File returns the path of the unit.
func (s *Service) File() string {
	if s.Packaged() {
		return s.path(filepath.Join(packageUnits, unit))
	}
	return s.path(filepath.Join(adminUnits, unit))
}

// ConfigFile returns the path of the configuration file.
func (s *Service) ConfigFile() string { return s.path("etc/" + Name + "/workflow-server.yaml") }

func (s *Service) manager() initsystem.Systemd { return initsystem.Systemd{Commands: s.commands} }

// Packaged reports whether a package contains the service.
func (s *Service) Packaged() bool {
	if info, err := os.Lstat(s.path(filepath.Join(adminUnits, unit))); err == nil && info.Mode().IsRegular() {
		return false // a link at this path is a mask
	}
	_, err := os.Lstat(s.path(filepath.Join(packageUnits, unit)))
	return err == nil
}

// render returns the unit for a program.
func render(program string) []byte {
	return initsystem.Fill(unitText, map[string]string{
		"Program": initsystem.UnitPath(program), "Account": Name,
		"Config": "/etc/" + Name + "/workflow-server.yaml", "EnvironmentFile": "/etc/" + Name + "/" + Name + ".env",
		"ProtectHome": initsystem.ProtectHome(program),
	}, nil)
}

// files returns the files that register the service.
func (s *Service) files() []initsystem.File {
	return []initsystem.File{
		{Path: s.path("etc/sysusers.d/" + Name + ".conf"), Text: sysusersText},
		{Path: s.path("etc/tmpfiles.d/" + Name + ".conf"), Text: tmpfilesText},
		{Path: s.path(filepath.Join(adminUnits, unit)), Text: render(s.Executable)},
	}
}

// WritePackage writes the files of a package, whose program is /usr/bin/workflow-server, to a directory.
func WritePackage(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating the directory of the package's files: %w", err)
	}
	for name, text := range map[string][]byte{
		unit: render("/usr/bin/" + Name), "sysusers.conf": sysusersText, "tmpfiles.conf": tmpfilesText, Name + ".yaml": []byte(configText),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return fmt.Errorf("writing a file of the package: %w", err)
		}
	}
	return nil
}

// ErrNoManager means that systemd does not run this machine.
var ErrNoManager = errors.New("systemd does not run this machine: start \"" + Name + " serve\" with the container or by another supervisor")

func (s *Service) ready() error {
	if s.root == "/" && !initsystem.Booted() {
		return ErrNoManager
	}
	if s.root == "/" && os.Geteuid() != 0 {
		return errors.New("the service needs root: run this with sudo")
	}
	return nil
}

// Register registers the service, or updates its registration. A running service keeps its program until
// it is restarted.
func (s *Service) Register(ctx context.Context) error {
	if err := errors.Join(s.ready(), s.replaceable()); err != nil {
		return err
	}
	undo, err := initsystem.ReplaceAll(s.files()...)
	if err != nil {
		return fmt.Errorf("writing the unit: %w", err)
	}
	if err := s.load(ctx); err != nil {
		_, reload := s.manager().Ctl(ctx, "daemon-reload")
		return errors.Join(err, undo(), reload)
	}
	return nil
}

// Enable makes the service start at boot.
func (s *Service) Enable(ctx context.Context) error {
	_, err := s.manager().Ctl(ctx, "enable", unit)
	return err
}

// load creates the account and its files, and loads the unit. It leaves an existing data directory to systemd,
// which gives all files in it to the account if another user owns the directory.
func (s *Service) load(ctx context.Context) error {
	if _, err := s.commands.Run(ctx, "systemd-sysusers", s.path("etc/sysusers.d/"+Name+".conf")); err != nil {
		return fmt.Errorf("creating the user %s: %w", Name, err)
	}
	const place = "put the program into a directory of root that every user can enter, such as /opt/" + Name
	err := initsystem.Reachable(s.Executable, s.account, place)
	if err != nil {
		return err
	}
	if err := initsystem.OnlyRootChanges(s.Executable, place); err != nil {
		return err
	}
	if err := s.configure(); err != nil {
		return err
	}
	if _, err := os.Lstat(s.path(dataDir)); errors.Is(err, os.ErrNotExist) {
		if _, err := s.commands.Run(ctx, "systemd-tmpfiles", "--create", s.path("etc/tmpfiles.d/"+Name+".conf")); err != nil {
			return fmt.Errorf("creating the data directory: %w", err)
		}
	}
	if _, err := s.manager().Ctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	loaded, err := s.manager().Ctl(ctx, "show", "--property=LoadState", "--value", unit)
	if err != nil || loaded != "loaded" {
		return errors.Join(fmt.Errorf("systemd did not load the unit (LoadState=%q): run systemctl status %s", loaded, unit), err)
	}
	return nil
}

// configure creates the configuration file if it is missing, and lets the service's account read it.
func (s *Service) configure() error {
	if err := os.MkdirAll(filepath.Dir(s.ConfigFile()), 0o755); err != nil {
		return fmt.Errorf("creating the directory of the configuration: %w", err)
	}
	if err := initsystem.MakeFile(s.ConfigFile(), configText); err != nil {
		return fmt.Errorf("creating the configuration file: %w", err)
	}
	return initsystem.ShareFile(s.ConfigFile(), s.account)
}

// replaceable returns an error if the unit is not one that Install has written.
func (s *Service) replaceable() error {
	if s.Packaged() {
		return fmt.Errorf("the service belongs to a package, which updates it: %s", s.File())
	}
	if target, err := os.Readlink(s.File()); err == nil && target == os.DevNull {
		return fmt.Errorf("the service is masked: first run systemctl unmask %s", Name)
	}
	text, err := os.ReadFile(s.File())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the unit: %w", err)
	}
	if !strings.Contains(string(text), mark) {
		return fmt.Errorf("%s was written by hand: move the settings in it to %s, remove the unit, and run this again", s.File(), s.ConfigFile())
	}
	return nil
}

// Uninstall stops the service and removes its registration. Configuration, data and account remain.
func (s *Service) Uninstall(ctx context.Context) error {
	if err := errors.Join(s.ready(), s.replaceable()); err != nil {
		return err
	}
	if _, err := os.Lstat(s.File()); errors.Is(err, os.ErrNotExist) {
		return initsystem.ErrNotInstalled
	}
	if _, err := s.manager().Ctl(ctx, "disable", "--now", unit); err != nil {
		return err
	}
	var absent []initsystem.File
	for _, f := range s.files() {
		absent = append(absent, initsystem.File{Path: f.Path})
	}
	if _, err := initsystem.ReplaceAll(absent...); err != nil {
		return fmt.Errorf("removing the unit: %w", err)
	}
	if _, err := s.manager().Ctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	_, _ = s.manager().Ctl(ctx, "reset-failed", unit) // fails if the unit has not failed
	return nil
}

// Do starts, stops or restarts the service, and returns when it is ready or has stopped.
func (s *Service) Do(ctx context.Context, verb string) error {
	if err := s.ready(); err != nil {
		return err
	}
	if _, err := s.Describe(ctx); err != nil {
		return err
	}
	if _, err := s.manager().Ctl(ctx, verb, unit); err != nil {
		return fmt.Errorf("%w; for its own output: %s service logs", err, Name)
	}
	return nil
}

// Describe returns the state of the service, or [initsystem.ErrNotInstalled].
func (s *Service) Describe(ctx context.Context) (initsystem.State, error) {
	if s.root == "/" && !initsystem.Booted() {
		return initsystem.State{}, ErrNoManager
	}
	state, err := s.manager().Describe(ctx, unit)
	state.Installed = s.File()
	return state, err
}

// Logs writes the last lines of the service's log; see [initsystem.Systemd.Logs].
func (s *Service) Logs(ctx context.Context, out io.Writer, lines int, follow bool) error {
	return s.manager().Logs(ctx, out, unit, lines, follow)
}
