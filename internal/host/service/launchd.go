package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/kardianos/service"

	"workflowagent/internal/retry"
	"workflowagent/internal/sys/initsystem"
)

// launchdSystem is the launchd implementation of kardianos/service's System.
type launchdSystem struct{ options Options }

// Launchd is the Platform value of a launchd service.
const Launchd = "darwin-launchd"

func (launchdSystem) String() string { return Launchd }

func (launchdSystem) Detect() bool { return runtime.GOOS == "darwin" }

func (launchdSystem) Interactive() bool { return os.Getppid() != 1 }

func (s launchdSystem) New(service.Interface, *service.Config) (service.Service, error) {
	home, err := os.UserHomeDir()
	if err != nil && s.options.User {
		return nil, fmt.Errorf("finding your home directory: %w; set HOME", err)
	}
	return newLaunchd(s.options, initsystem.Exec{}, home), nil
}

// launchd is a launchd service. launchd calls a service of the machine a daemon and a service of a
// user an agent.
type launchd struct {
	unsupported
	options  Options
	commands initsystem.Runner
	home     string
	root     string // path prefix for the machine service's files, for tests
	domain   string // system or gui/UID
}

func newLaunchd(o Options, commands initsystem.Runner, home string) *launchd {
	domain := "system"
	if o.User {
		domain = "gui/" + strconv.Itoa(os.Getuid())
	}
	return &launchd{options: o, commands: commands, home: home, domain: domain}
}

func (l *launchd) String() string { return displayName }

func (l *launchd) Platform() string { return launchdSystem{}.String() }

func (l *launchd) File() string {
	if l.options.User {
		return filepath.Join(l.home, "Library", "LaunchAgents", l.options.Name+".plist")
	}
	return filepath.Join(l.root, "/Library", "LaunchDaemons", l.options.Name+".plist")
}

// EnvironmentFile returns the path of the environment file. The agent itself reads this file,
// because launchd does not support environment files.
func (l *launchd) EnvironmentFile() string {
	if l.options.User {
		return filepath.Join(l.home, ".config", l.options.Name+".env")
	}
	return filepath.Join(l.root, "/etc", l.options.Name+".env")
}

func (l *launchd) logFile() string {
	if l.options.User {
		return filepath.Join(l.home, "Library", "Logs", l.options.Name+".log")
	}
	return filepath.Join(l.root, "/Library", "Logs", l.options.Name+".log")
}

func (l *launchd) target() string { return l.domain + "/" + l.options.Name }

func (l *launchd) rights() error {
	if l.options.User {
		if os.Geteuid() == 0 {
			return errors.New("root has no user session: run this as the user of the agent, without sudo")
		}
		return nil
	}
	return needRoot()
}

// Install writes or replaces the property list. A loaded service uses the old property list until
// it is restarted.
func (l *launchd) Install() error {
	if err := l.rights(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(l.logFile()), 0o755); err != nil {
		return fmt.Errorf("creating the directory of the log: %w", err)
	}
	if !l.options.User {
		if err := l.prepare(); err != nil {
			return err
		}
	}
	helper := initsystem.File{Path: l.helper().File()}
	if l.options.Updates != nil {
		helper.Text = l.renderUpdates()
	}
	if _, err := initsystem.ReplaceAll(initsystem.File{Path: l.File(), Text: l.render()}, helper); err != nil {
		return fmt.Errorf("writing the property list: %w", err)
	}
	return nil
}

// helper returns the service that installs this service's updates.
func (l *launchd) helper() *launchd {
	h := *l
	h.options.Name = updateName(l.options)
	return &h
}

// Enable makes launchd load the service at boot or with the user's session, even if the service was
// disabled before. If the service updates itself, Enable also starts its update helper.
func (l *launchd) Enable(ctx context.Context) error {
	if err := l.enable(ctx); err != nil {
		return err
	}
	helper := l.helper()
	if err := helper.bootout(ctx); err != nil || l.options.Updates == nil {
		return err
	}
	return helper.bootstrap(ctx)
}

func (l *launchd) enable(ctx context.Context) error {
	_, err := l.ctl(ctx, "enable", l.target())
	return err
}

func (l *launchd) Uninstall() error {
	if err := l.rights(); err != nil {
		return err
	}
	if _, err := os.Lstat(l.File()); errors.Is(err, os.ErrNotExist) {
		return service.ErrNotInstalled
	}
	for _, one := range []*launchd{l.helper(), l} {
		if err := one.bootout(context.Background()); err != nil {
			return err
		}
	}
	if _, err := initsystem.ReplaceAll(initsystem.File{Path: l.helper().File()}, initsystem.File{Path: l.File()}); err != nil {
		return err
	}
	return os.RemoveAll(choicesFile(l))
}

// Start loads the service, which starts it. If the service is loaded but not running, Start
// kickstarts it.
func (l *launchd) Start() error {
	ctx := context.Background()
	if err := l.rights(); err != nil {
		return err
	}
	if _, err := os.Lstat(l.File()); errors.Is(err, os.ErrNotExist) {
		return service.ErrNotInstalled
	}
	if err := l.enable(ctx); err != nil {
		return err
	}
	loaded, err := l.loaded(ctx)
	if err != nil {
		return err
	}
	if loaded {
		return l.kickstart(ctx)
	}
	return l.bootstrap(ctx)
}

// Stop unloads the service, because launchd would restart a service that only exits. The service's
// jobs continue.
func (l *launchd) Stop() error {
	if err := l.rights(); err != nil {
		return err
	}
	return l.bootout(context.Background())
}

// Restart unloads the service and loads it again, which applies a new property list.
func (l *launchd) Restart() error {
	if err := l.Stop(); err != nil {
		return err
	}
	return l.Start()
}

// printed matches the lines in the output of launchctl print that Describe needs. The lines about
// the service itself are indented by one tab.
var printed = regexp.MustCompile(`(?m)^\t(state|pid|runs|last exit code) = (.*)$`)

func (l *launchd) Describe(ctx context.Context) (State, error) {
	if _, err := os.Lstat(l.File()); errors.Is(err, os.ErrNotExist) {
		return State{}, service.ErrNotInstalled
	}
	state := State{Active: "inactive", Detail: "not loaded", Installed: l.File()}
	out, err := l.ctl(ctx, "print", l.target())
	if initsystem.ExitCode(err) > 0 {
		return state, nil
	}
	if err != nil {
		return State{}, err
	}
	for _, match := range printed.FindAllStringSubmatch(out, -1) {
		switch key, value := match[1], strings.TrimSpace(match[2]); key {
		case "state":
			state.Detail = value
			switch value {
			case "running":
				state.Active = "active"
			case "spawn scheduled": // the process exited, and ThrottleInterval has not passed
				state.Active = "activating"
			case "SIGTERMed", "SIGKILLed": // a bootout is in progress
				state.Active = "deactivating"
			}
		case "pid":
			state.PID, _ = strconv.Atoi(value) // 0 if unknown
		case "runs":
			if runs, err := strconv.Atoi(value); err == nil {
				state.Restarts = max(runs-1, 0)
			}
		case "last exit code":
			if value != "(never exited)" && value != "0" {
				state.LastExit = "exit code " + value
			}
		}
	}
	return state, nil
}

func (l *launchd) Logs(ctx context.Context, out io.Writer, lines int, follow bool) error {
	args := []string{"-n", strconv.Itoa(lines)}
	if follow {
		args = append(args, "-F")
	}
	return l.commands.Stream(ctx, out, "tail", append(args, l.logFile())...)
}

// Exit codes of launchctl. Codes up to 106 have the same meaning as in errno.h.
const (
	exitIO         = 5   // EIO: the label is already in use, or still in use after a bootout
	exitInProgress = 36  // EINPROGRESS: a bootout is in progress
	exitAlready    = 37  // EALREADY: the operation is done or in progress
	exitNoDomain   = 112 // unknown domain
	exitNoSession  = 125 // the domain does not support this: the user has no graphical session
)

// launchdTime is the time in which launchd unloads a service (ExitTimeOut), plus a margin.
const (
	launchdTime  = 45 * time.Second
	launchdPause = 200 * time.Millisecond
)

func (l *launchd) ctl(ctx context.Context, args ...string) (string, error) {
	return l.commands.Run(ctx, "launchctl", args...)
}

// loaded reports whether launchd knows the service. This includes a service that is being unloaded.
func (l *launchd) loaded(ctx context.Context) (bool, error) {
	_, err := l.ctl(ctx, "print", l.target())
	if initsystem.ExitCode(err) > 0 {
		return false, nil // print fails only for a service that is not loaded
	}
	return err == nil, err
}

// bootstrap loads the service, which starts it. launchd returns the same errors (EIO or EALREADY)
// in two cases. Either another process has loaded the label, or launchd has not yet released the
// label after a bootout, which can take seconds after print no longer finds the label. Therefore,
// bootstrap retries until it can tell these cases apart.
func (l *launchd) bootstrap(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, launchdTime)
	defer cancel()
	for {
		_, err := l.ctl(ctx, "bootstrap", l.domain, l.File())
		switch initsystem.ExitCode(err) {
		case exitIO, exitAlready:
		case exitNoDomain, exitNoSession:
			return fmt.Errorf("%w: a user's service is loaded into the user's graphical session: log in there first", err)
		default:
			return err
		}
		if loaded, lerr := l.loaded(ctx); lerr != nil {
			return lerr
		} else if loaded {
			return l.kickstart(ctx)
		}
		if retry.Sleep(ctx, launchdPause) != nil {
			return fmt.Errorf("launchd did not load %s within %s: %w; see plutil -lint %s and the system log", l.options.Name, launchdTime, err, l.File())
		}
	}
}

// kickstart starts a loaded service. It does nothing if the service is running.
func (l *launchd) kickstart(ctx context.Context) error {
	if _, err := l.ctl(ctx, "kickstart", l.target()); initsystem.ExitCode(err) != exitAlready {
		return err
	}
	return nil
}

// bootout unloads the service and waits until launchd has released its label, because a bootstrap
// before then would fail. launchctl itself does not wait.
func (l *launchd) bootout(ctx context.Context) error {
	loaded, err := l.loaded(ctx)
	if err != nil || !loaded {
		return err
	}
	_, refused := l.ctl(ctx, "bootout", l.target())
	if initsystem.ExitCode(refused) == exitInProgress {
		refused = nil
	}
	ctx, cancel := context.WithTimeout(ctx, launchdTime)
	defer cancel()
	for {
		loaded, err := l.loaded(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case err == nil && !loaded:
			return nil // also if the service was unloaded before the bootout
		case refused != nil:
			return refused
		}
		if retry.Sleep(ctx, launchdPause) != nil {
			return fmt.Errorf("launchd did not unload %s within %s: see launchctl print %s", l.options.Name, launchdTime, l.target())
		}
	}
}
