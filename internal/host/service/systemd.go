package service

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kardianos/service"

	"workflowagent/internal/termtext"
)

// systemdSystem is the systemd implementation of kardianos/service's System.
type systemdSystem struct{ options Options }

func (systemdSystem) String() string { return "linux-systemd" }

// Detect reports whether systemd runs this machine, in the same way as sd_booted(3).
func (systemdSystem) Detect() bool {
	info, err := os.Lstat("/run/systemd/system")
	return err == nil && info.IsDir()
}

func (systemdSystem) Interactive() bool { return os.Getenv("INVOCATION_ID") == "" }

func (s systemdSystem) New(service.Interface, *service.Config) (service.Service, error) {
	return newSystemd(s.options, execRunner{})
}

type systemd struct {
	unsupported
	options  Options
	commands runner
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

func (s *systemd) ctl(ctx context.Context, args ...string) (string, error) {
	if !s.options.User {
		return s.commands.run(ctx, "systemctl", args...)
	}
	out, err := s.commands.run(ctx, "systemctl", append([]string{"--user"}, args...)...)
	if err != nil && strings.Contains(err.Error(), "Failed to connect to") {
		err = fmt.Errorf("%w; %s", err, howToSession())
	}
	return out, err
}

// howToSession returns advice on how to start a user's systemd.
func howToSession() string {
	name := "USER"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return fmt.Sprintf("log in as that user (not through su or sudo), or let root run loginctl enable-linger %s and set XDG_RUNTIME_DIR=/run/user/%d", name, os.Getuid())
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
		// Without a process, the text would come from a process that has exited. The text is
		// untrusted and can be displayed on root's terminal.
		state.Detail += ": " + string(termtext.Plain(nil, []byte(text)))
	}
	state.Restarts, _ = strconv.Atoi(values["NRestarts"]) // absent means 0
	// --timestamp=unix would be simpler, but is an error before systemd 251.
	if since, err := time.Parse("Mon 2006-01-02 15:04:05 MST", values["StateChangeTimestamp"]); err == nil {
		state.Since = since.Local()
	}
	if result := values["Result"]; result != "success" {
		state.LastExit = result
		switch values["ExecMainCode"] { // as in waitid(2)
		case "1":
			state.LastExit += ", exit code " + values["ExecMainStatus"]
		case "2", "3":
			state.LastExit += ", signal " + values["ExecMainStatus"]
		}
	}
	return state, nil
}

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
	return fmt.Errorf("%w: no session of systemd, XDG_RUNTIME_DIR is not set; %s", ErrNoManager, howToSession())
}

func (s *systemd) version(ctx context.Context) (int, error) {
	out, err := s.commands.run(ctx, "systemctl", "--version")
	if err != nil {
		return 0, fmt.Errorf("reading the version of systemd: %w", err)
	}
	fields := strings.Fields(out)
	if len(fields) < 2 {
		return 0, fmt.Errorf("systemctl --version prints %q, without a version", out)
	}
	version, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0, fmt.Errorf("systemctl --version prints %q, without a version", out)
	}
	return version, nil
}
