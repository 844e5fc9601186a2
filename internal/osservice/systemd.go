package osservice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kardianos/service"

	"workflowagent/internal/termtext"
)

// systemdSystem is systemd as kardianos/service wants to see a service manager.
type systemdSystem struct{ options Options }

// String names the system as kardianos/service does.
func (systemdSystem) String() string { return "linux-systemd" }

// Detect reports whether systemd runs this machine, as sd_booted(3) does.
func (systemdSystem) Detect() bool {
	info, err := os.Lstat("/run/systemd/system")
	return err == nil && info.IsDir()
}

// Interactive reports whether this process was started by a person.
func (systemdSystem) Interactive() bool { return os.Getenv("INVOCATION_ID") == "" }

// New returns the service.
func (s systemdSystem) New(service.Interface, *service.Config) (service.Service, error) {
	return newSystemd(s.options, execRunner{})
}

// systemd is one service of systemd.
type systemd struct {
	unsupported
	options  Options
	commands runner
	units    string // directory of the unit
	settings string // directory of the environment file
	packaged bool   // the unit is a package's
}

// stateName is the directory below /var/lib that the services of the machine share.
const stateName = "workflow-agent"

// Where units are: those of the administrator, which come first, and those of packages.
const (
	adminUnits   = "/etc/systemd/system"
	packageUnits = "/usr/lib/systemd/system"
)

func newSystemd(o Options, commands runner) (*systemd, error) {
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

// String returns the service's name for people.
func (s *systemd) String() string { return displayName }

// Platform names the service manager.
func (s *systemd) Platform() string { return systemdSystem{}.String() }

// File returns the path of the unit.
func (s *systemd) File() string { return filepath.Join(s.units, s.unit()) }

// EnvironmentFile returns the path of the environment file.
func (s *systemd) EnvironmentFile() string { return filepath.Join(s.settings, s.options.Name+".env") }

func (s *systemd) unit() string { return s.options.Name + ".service" }

// ofPackage reports whether the service is a package's, which is brought up to date
// where the package has it: a copy among the administrator's units would hide the
// units of later packages. A binary from elsewhere makes a unit of its own.
func (s *systemd) ofPackage(admin, packages string) bool {
	if info, err := os.Lstat(filepath.Join(admin, s.unit())); err == nil && info.Mode().IsRegular() {
		return false // a link there is a mask
	}
	_, err := os.Lstat(filepath.Join(packages, s.unit()))
	return err == nil && (s.options.Executable == "" || strings.HasPrefix(resolved(s.options.Executable), "/usr/"))
}

// resolved follows symbolic links as far as it can.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// ctl runs systemctl.
func (s *systemd) ctl(ctx context.Context, args ...string) (string, error) {
	if !s.options.User {
		return s.commands.run(ctx, "systemctl", args...)
	}
	out, err := s.commands.run(ctx, "systemctl", append([]string{"--user"}, args...)...)
	if err != nil && strings.Contains(err.Error(), "Failed to connect to") {
		err = fmt.Errorf("%w; %s", err, howToSession)
	}
	return out, err
}

// howToSession is how a user gets to a systemd of the own.
const howToSession = "log in as that user (not through su or sudo), or run loginctl enable-linger USER and set XDG_RUNTIME_DIR=/run/user/UID"

// Install writes the unit and makes systemd read it. An older one is replaced;
// a service that runs goes on with what it was started from until a restart. If
// systemd does not take the new unit, the old one is back.
func (s *systemd) Install() error {
	ctx := context.Background() // each call has its own limit
	if err := s.rights(); err != nil {
		return err
	}
	if err := s.masked(); err != nil {
		return err
	}
	version, err := s.version(ctx)
	if err != nil && !s.options.Packaged {
		return err
	}
	if s.packaged {
		s.options.Executable = resolved(s.options.Executable) // not the link in /usr/bin, old name or new
	}
	if !s.options.User {
		if err := sharesState([]string{adminUnits, packageUnits}, s.unit(), s.options.Account); err != nil && !s.options.Packaged {
			return err
		}
		if err := ensureAccount(ctx, s.commands, s.options.Account); err != nil {
			return err
		}
		if err := reachable(s.options.Executable, s.options.Account); err != nil {
			return err
		}
		// An upgrade does not fail for what keeps the service from starting.
		if s.options.Docker && !s.options.Packaged {
			if err := groupExists("docker"); err != nil {
				return err
			}
		}
	}
	if !s.options.User {
		if err := shareConfig(s.options.Config, s.options.Account); err != nil {
			return err
		}
	}
	files, err := s.registrations(version)
	if err != nil {
		return err
	}
	if s.options.Updates == nil {
		if err := s.forgetUpdates(ctx); err != nil {
			return err
		}
	}
	undo, err := place(files)
	if err != nil {
		return fmt.Errorf("writing the unit: %w", err)
	}
	if s.options.Packaged {
		return nil
	}
	if _, err := s.ctl(ctx, "daemon-reload"); err != nil {
		return s.takeBack(ctx, undo, err)
	}
	for _, unit := range s.allUnits() {
		loaded, err := s.ctl(ctx, "show", "--property=LoadState", "--value", unit)
		if err == nil && loaded == "masked" && unit == s.unit() {
			return s.takeBack(ctx, undo, s.errMasked())
		}
		if err != nil || loaded != "loaded" && loaded != "masked" {
			return s.takeBack(ctx, undo, errors.Join(fmt.Errorf("systemd does not take the unit (%s): see systemctl status %s", loaded, unit), err))
		}
	}
	return nil
}

// masked refuses to put a unit in the place of an administrator's mask.
func (s *systemd) masked() error {
	if resolved(s.File()) == os.DevNull {
		return s.errMasked()
	}
	return nil
}

func (s *systemd) errMasked() error {
	user := ""
	if s.options.User {
		user = "--user "
	}
	return fmt.Errorf("the service is masked: allow it first with: systemctl %sunmask %s", user, s.options.Name)
}

// sharesState refuses an account that is not that of the other services: systemd gives
// the state directory, which they share, to the account of the one that starts.
func sharesState(dirs []string, unit, account string) error {
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.service"))
		if err != nil {
			return err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			_, rest, ours := strings.Cut(string(text), "\nUser=")
			other, _, _ := strings.Cut(rest, "\n")
			if err != nil || !ours || other == account || filepath.Base(file) == unit || !strings.Contains(rest, "\nStateDirectory="+stateName+"\n") {
				continue
			}
			return fmt.Errorf("the service %s has its state in /var/lib/%s as the user %s, and all services share that directory: choose --account %s",
				strings.TrimSuffix(filepath.Base(file), ".service"), stateName, other, other)
		}
	}
	return nil
}

// registrations returns the unit, and those of its helper for updates.
func (s *systemd) registrations(version int) ([]registration, error) {
	text, err := s.render(version)
	if err != nil {
		return nil, err
	}
	files := []registration{{s.File(), text}}
	if s.packaged {
		return files, nil
	}
	var path, helper []byte
	if s.options.Updates != nil {
		if path, helper, err = s.renderUpdates(version); err != nil {
			return nil, err
		}
	}
	return append(files, registration{s.updatePath(), path}, registration{s.updateUnit(), helper}), nil
}

// allUnits are the names of the units that the service has.
func (s *systemd) allUnits() []string {
	units := []string{s.unit()}
	if s.options.Updates != nil {
		units = append(units, filepath.Base(s.updatePath()), filepath.Base(s.updateUnit()))
	}
	return units
}

func (s *systemd) updatePath() string { return filepath.Join(s.units, updateName(s.options)+".path") }

func (s *systemd) updateUnit() string {
	return filepath.Join(s.units, updateName(s.options)+".service")
}

// forgetUpdates switches the helper for updates off, if there is one. An update that
// is under way comes to its end.
func (s *systemd) forgetUpdates(ctx context.Context) error {
	if s.packaged || !exists(s.updatePath()) && !exists(s.updateUnit()) {
		return nil
	}
	if _, err := s.ctl(ctx, "disable", "--now", filepath.Base(s.updatePath())); err != nil {
		return err
	}
	_, err := s.ctl(ctx, "disable", filepath.Base(s.updateUnit()))
	return err
}

func (s *systemd) takeBack(ctx context.Context, undo func() error, cause error) error {
	err := undo()
	if err == nil {
		_, err = s.ctl(ctx, "daemon-reload")
	}
	if err != nil {
		return errors.Join(cause, fmt.Errorf("taking the unit back: %w", err))
	}
	return cause
}

// Enable starts the service with the machine, or with the user's session.
func (s *systemd) Enable(ctx context.Context) error {
	if _, err := s.ctl(ctx, append([]string{"enable"}, s.allUnits()...)...); err != nil || s.options.Updates == nil {
		return err
	}
	// It begins to look now, and by the new unit.
	_, err := s.ctl(ctx, "restart", filepath.Base(s.updatePath()))
	return err
}

// Uninstall stops the service and removes its unit. Jobs go on, and the state
// directory, the configuration and the environment file stay.
func (s *systemd) Uninstall() error {
	ctx := context.Background()
	if err := s.rights(); err != nil {
		return err
	}
	if s.packaged {
		return fmt.Errorf("the service belongs to a package: remove that with apt or dnf, or switch the service off with: systemctl disable --now %s", s.options.Name)
	}
	if err := s.masked(); err != nil {
		return err
	}
	if _, err := os.Lstat(s.File()); errors.Is(err, os.ErrNotExist) {
		return service.ErrNotInstalled
	}
	if _, err := s.ctl(ctx, "disable", "--now", s.unit()); err != nil {
		return err
	}
	units := []string{s.unit()}
	if exists(s.updateUnit()) {
		units = append(units, filepath.Base(s.updateUnit()))
	}
	if err := s.forgetUpdates(ctx); err != nil {
		return err
	}
	if _, err := place([]registration{{path: s.updatePath()}, {path: s.updateUnit()}, {path: s.File()}}); err != nil {
		return err
	}
	if _, err := s.ctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	// A unit that failed stays listed; that there is nothing to reset is no failure.
	_, _ = s.ctl(ctx, append([]string{"reset-failed"}, units...)...)
	return forgetChoices(choicesFile(s))
}

// Start starts the service and returns when it says that it is up.
func (s *systemd) Start() error { return s.act("start") }

// Stop stops the service. Its jobs go on.
func (s *systemd) Stop() error { return s.act("stop") }

// Restart stops and starts the service. Its jobs go on.
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
		return fmt.Errorf("%w\nWhat it said itself shows: %s service logs%s", err, DefaultName, s.options.flags())
	}
	return nil
}

// Status returns what kardianos/service has words for.
func (s *systemd) Status() (service.Status, error) {
	state, err := s.Describe(context.Background())
	if err != nil {
		return service.StatusUnknown, err
	}
	return state.status(), nil
}

// Describe returns what systemd knows.
func (s *systemd) Describe(ctx context.Context) (State, error) {
	if err := s.session(); err != nil {
		return State{}, err
	}
	out, err := s.ctl(ctx, "show", s.unit(),
		"--property=LoadState,ActiveState,SubState,UnitFileState,MainPID,NRestarts,Result,StatusText,ExecMainCode,ExecMainStatus,StateChangeTimestamp")
	if err != nil {
		return State{}, err
	}
	values := map[string]string{}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[key] = value
	}
	if values["LoadState"] == "not-found" {
		return State{}, service.ErrNotInstalled
	}
	state := State{
		Active: values["ActiveState"], Detail: values["SubState"], Enabled: values["UnitFileState"], Installed: s.File(),
	}
	if values["LoadState"] == "masked" {
		state.Detail = "masked"
	}
	state.PID, _ = strconv.Atoi(values["MainPID"]) // absent means 0
	if text := values["StatusText"]; text != "" && state.PID > 0 {
		// Else the last words of one that has ended. They are those of a process that need
		// not be honest, and are read on root's terminal.
		state.Detail += ": " + string(termtext.Plain(nil, []byte(text)))
	}
	state.Restarts, _ = strconv.Atoi(values["NRestarts"]) // absent means 0
	// --timestamp=unix would say it more plainly, but is an error before systemd 251.
	if since, err := time.Parse("Mon 2006-01-02 15:04:05 MST", values["StateChangeTimestamp"]); err == nil {
		state.Since = since.Local()
	}
	if result := values["Result"]; result != "success" {
		state.LastExit = result
		switch values["ExecMainCode"] { // as waitid(2) has them
		case "1":
			state.LastExit += ", exit code " + values["ExecMainStatus"]
		case "2", "3":
			state.LastExit += ", signal " + values["ExecMainStatus"]
		}
	}
	return state, nil
}

// Logs writes the journal of the unit.
func (s *systemd) Logs(ctx context.Context, out io.Writer, lines int, follow bool) error {
	args := []string{"--no-pager", "--output=cat", "--lines=" + strconv.Itoa(lines)}
	if s.options.User {
		args = append(args, "--user-unit="+s.unit())
	} else {
		args = append(args, "--unit="+s.unit())
	}
	if follow {
		args = append(args, "--follow")
	}
	return s.commands.stream(ctx, out, "journalctl", args...)
}

// rights says early, and in words, who may do this.
func (s *systemd) rights() error {
	if s.options.User {
		return s.session()
	}
	return needRoot()
}

// session says that a user's systemd cannot be reached from here.
func (s *systemd) session() error {
	if s.options.User && os.Getenv("XDG_RUNTIME_DIR") == "" {
		return errors.New("no user session of systemd: XDG_RUNTIME_DIR is not set; " + howToSession)
	}
	return nil
}

// version returns the major version of systemd.
func (s *systemd) version(ctx context.Context) (int, error) {
	out, err := s.commands.run(ctx, "systemctl", "--version")
	if err != nil {
		return 0, fmt.Errorf("asking for the version of systemd: %w", err)
	}
	fields := strings.Fields(out)
	if len(fields) < 2 {
		return 0, fmt.Errorf("systemctl --version says %q, which has no version", out)
	}
	version, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0, fmt.Errorf("systemctl --version says %q, which has no version", out)
	}
	return version, nil
}
