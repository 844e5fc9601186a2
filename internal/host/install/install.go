// Package install installs, upgrades and removes the agent. install.sh runs it after it has
// verified a release. Package update installs files and switches versions, and package service
// manages the service.
package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"

	kardianos "github.com/kardianos/service"

	"workflowagent/internal/host/release"
	"workflowagent/internal/host/service"
	"workflowagent/internal/host/update"
	"workflowagent/internal/host/upkeep"
	"workflowagent/internal/termtext"
)

// Options are the options of install.sh, which has already validated them.
type Options struct {
	System    bool // install for the whole machine instead of the current user
	Dir       string
	NoService bool // do not register, restart or remove a service
	Docker    bool
	Process   bool
	NoPath    bool // do not offer to extend the PATH
	Uninstall bool
	Purge     bool
	Yes       bool
	Silent    bool

	Stage    string       // directory that contains the archive, its checksums and their signature
	Version  string       // version of the release in Stage
	Explicit bool         // whether the user requested this version
	Keys     release.Keys // trusted keys, one of which must have signed the release
	Out, Err io.Writer
}

const systemLinks = "/usr/local/bin"

// configurations lists the files in a user's installation that remain after an uninstall.
var configurations = []string{"pulumi-workflow-agent.yaml", "pulumi-deployment-agent.yaml"}

type installer struct {
	Options

	home    string
	at      update.Installation
	running bool  // whether the service was running before
	failed  error // errors that occurred after the programs were installed

	// Tests replace these functions.
	open     func(service.Options) (service.Service, error)
	choose   func(service.Options) (service.Options, error)
	register func(context.Context, service.Options, map[string]string, func(error)) (service.Service, error)
}

// Run installs, upgrades or removes the agent, depending on the options.
func Run(ctx context.Context, o Options) error {
	i := &installer{Options: o, home: os.Getenv("HOME"), open: service.Open, choose: service.Chosen, register: upkeep.Register}
	return i.run(ctx)
}

func (i *installer) run(ctx context.Context) error {
	root, err := i.root()
	if err != nil {
		return err
	}
	if err := i.packaged(ctx); err != nil {
		return err
	}
	if i.at, err = update.OpenInstallation(root, configurations); err != nil {
		return err
	}
	if i.Uninstall {
		return i.remove(ctx)
	}
	return i.install(ctx)
}

func (i *installer) install(ctx context.Context) error {
	before, root := i.at.Version, i.at.Root
	if !i.Explicit && i.at.NewerThan(i.Version) {
		newer := fmt.Sprintf("%s has %s, which is newer than %s.", root, before, i.Version)
		if !i.ask(newer + " Install the older one?") {
			return fmt.Errorf("%s To install it anyway: --version %s", newer, i.Version)
		}
	}
	if err := i.at.Place(ctx, i.Keys, i.Stage, i.Version); err != nil {
		return err
	}
	if i.System {
		i.linkSystem()
	}
	switch before {
	case "":
		i.say("Installed %s in %s.", i.Version, root)
	case i.Version:
		i.say("%s was already installed in %s; its files are complete.", i.Version, root)
	case update.FlatVersion:
		i.say("Upgraded the agent in %s to %s. Its configuration is unchanged.", root, i.Version)
	default:
		i.say("Upgraded from %s to %s in %s. Its configuration is unchanged.", before, i.Version, root)
	}
	if i.NoService {
		i.say("No service was registered (--no-service). A running agent keeps its version until it is restarted.")
	} else if err := i.serve(ctx, before); err != nil {
		return err
	}
	if !i.System {
		i.extendPath()
	}
	if i.failed != nil {
		return i.failed
	}
	agent, sudo := release.Program, i.sudo()
	if i.System && !inPath(systemLinks) { // the PATH of sudo can lack this directory
		agent = filepath.Join(systemLinks, agent)
	}
	switch {
	case i.NoService:
		i.say("Next: %s%s configure, then start it: %s run", sudo, agent, agent)
	case !i.running:
		i.say("Next: %s%s configure, then: %s%s service start%s", sudo, agent, sudo, agent, i.userFlag())
	}
	return nil
}

// serve registers the service or updates an existing registration. If the service was running,
// serve restarts it. If it then does not start, serve restores the previous version.
func (i *installer) serve(ctx context.Context, before string) error {
	o := i.service()
	s, err := i.open(o)
	var state service.State
	if err == nil {
		state, err = s.Describe(ctx)
	}
	if errors.Is(err, service.ErrNoManager) {
		i.say("No service was registered: %v", err)
		i.NoService = true
		return nil
	}
	i.running = err == nil && state.Active == "active"
	if err == nil || errors.Is(err, kardianos.ErrNotInstalled) {
		o, err = i.choose(o)
	}
	if err == nil {
		o.Docker = o.Docker || i.Docker
		if i.Process {
			o.Profile = service.ProfileProcess
		}
		s, err = i.register(ctx, o, nil, i.warn)
	}
	if err != nil {
		i.fail(fmt.Errorf("%s is installed, but its service is not: %w; then run: %s service install%s", i.Version, err, o.Executable, i.userFlag()))
		return nil
	}
	if !i.running {
		i.lingerHint()
		return nil
	}
	err = s.Restart()
	if err == nil {
		i.say("The service was restarted with %s. Running deployments continue.", i.Version)
		return nil
	}
	logs := fmt.Sprintf("see %s service logs%s", release.Program, i.userFlag())
	err = fmt.Errorf("the service does not start with %s: %w", i.Version, err)
	if before == "" || before == i.Version {
		return fmt.Errorf("%w; %s", err, logs)
	}
	if back := i.restore(ctx, before); back != nil {
		return fmt.Errorf("%w; %s was not restored either: %w; %s", err, before, back, logs)
	}
	return fmt.Errorf("%w; the service runs with %s again: %s", err, before, logs)
}

// restore makes the previous version current again. It then runs that version to register and
// restart its service.
func (i *installer) restore(ctx context.Context, before string) error {
	if err := i.at.Revert(before); err != nil {
		return err
	}
	for _, verb := range []string{"install", "restart"} {
		args := append([]string{"service", verb}, strings.Fields(i.userFlag())...)
		if out, err := exec.CommandContext(ctx, filepath.Join(i.at.Root, release.Program), args...).CombinedOutput(); err != nil {
			return fmt.Errorf("service %s: %w: %s", verb, err, termtext.LastLine(string(out), 0))
		}
	}
	return nil
}

func (i *installer) service() service.Options {
	return service.Options{User: !i.System, Executable: filepath.Join(i.at.Root, release.Program)}
}

func (i *installer) lingerHint() {
	name := userName()
	if _, err := os.Lstat("/run/systemd/system"); err != nil || i.System || name == "" {
		return
	}
	if _, err := os.Lstat("/var/lib/systemd/linger/" + name); err != nil {
		i.say("Your service stops with your last session, unless you run: loginctl enable-linger")
	}
}

func (i *installer) root() (string, error) {
	if info, err := os.Stat(i.home); err == nil && !i.System && os.Geteuid() == 0 {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 {
			return "", fmt.Errorf("you are root, but %s belongs to another user: run this without sudo to install for yourself, or use --system", i.home)
		}
	}
	root, err := filepath.Abs(i.Dir)
	if err != nil {
		return "", fmt.Errorf("finding the directory to install into: %w", err)
	}
	if root == "/" {
		return "", errors.New("the agent cannot be installed into the root directory: use --dir DIR")
	}
	if strings.ContainsFunc(root, func(r rune) bool { return r == ':' || unicode.IsControl(r) }) {
		return "", errors.New("a directory in PATH cannot have a colon or a line break in its name: use another --dir")
	}
	return root, nil
}

// packaged returns an error if a package manager has already installed an agent, because a second
// agent must not be installed next to it.
func (i *installer) packaged(ctx context.Context) error {
	found, _ := exec.LookPath(release.Program) // "" if the program is missing
	for _, file := range []string{found, "/usr/bin/" + release.Program} {
		if _, err := os.Lstat(file); err != nil {
			continue
		}
		_, err := update.Find(ctx, file)
		packaged, ok := errors.AsType[*update.PackagedError](err)
		if ok && i.Uninstall {
			return fmt.Errorf("%s belongs to a package of %s: remove it with: %s", packaged.Path, packaged.Manager, packaged.Removal())
		}
		if ok {
			return fmt.Errorf("%w (or first remove it: %s)", packaged, packaged.Removal())
		}
	}
	return nil
}

func (i *installer) userFlag() string {
	if i.System {
		return ""
	}
	return " --user"
}

func (i *installer) sudo() string {
	if i.System && os.Getenv("SUDO_USER") != "" {
		return "sudo "
	}
	return ""
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

func inPath(dir string) bool { return strings.Contains(":"+os.Getenv("PATH")+":", ":"+dir+":") }

func (i *installer) say(format string, values ...any) {
	if !i.Silent {
		fmt.Fprintf(i.Out, format+"\n", values...)
	}
}

func (i *installer) warn(err error) {
	fmt.Fprintln(i.Err, "warning:", err)
}

// fail records an error that does not stop the installation. Run reports it at the end.
func (i *installer) fail(err error) { i.failed = errors.Join(i.failed, err) }
