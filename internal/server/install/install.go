// Package install installs, upgrades and removes the server of an archive. install.sh runs it after it has
// verified the archive.
package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/Masterminds/semver/v3"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/systemd"
	"workflowagent/internal/sys/initsystem"
	"workflowagent/internal/termtext"
)

// Options are the options of install.sh, which has already validated them.
type Options struct {
	Dir       string // absolute path of the installation
	NoService bool   // do not register, restart or remove a service
	Uninstall bool
	Purge     bool
	Yes       bool
	Silent    bool

	Archive  string // path of the release's archive
	Version  string // of the release
	Explicit bool   // whether the user requested this version
	Out, Err io.Writer
}

const (
	program   = systemd.Name
	evaluator = wire.Program // the server starts it
	previous  = ".previous"  // suffix of a program before an upgrade
	links     = "/usr/local/bin"
)

// service is the server's service on this machine.
type service interface {
	Packaged() bool
	Describe(ctx context.Context) (initsystem.State, error)
	Register(ctx context.Context) error
	Enable(ctx context.Context) error
	Uninstall(ctx context.Context) error
	Do(ctx context.Context, verb string) error
}

type installer struct {
	Options

	service service
	links   string
	// runs returns the output of a server's command.
	runs func(ctx context.Context, program string, args ...string) (string, error)
	// purge removes configuration, data and account.
	purge func(ctx context.Context) error
}

// Run installs, upgrades or removes the server, depending on the options.
func Run(ctx context.Context, o Options) error {
	i := &installer{Options: o, service: systemd.At(filepath.Join(o.Dir, program)), links: links, runs: output, purge: purge}
	if i.service.Packaged() {
		return errors.New("a package of this machine contains the server: upgrade or remove it with apt or dnf")
	}
	if i.Uninstall {
		return i.remove(ctx)
	}
	return i.install(ctx)
}

func output(ctx context.Context, program string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, termtext.LastLine(string(out), 0))
	}
	return strings.TrimSpace(string(out)), err
}

func (i *installer) program() string { return filepath.Join(i.Dir, program) }

func (i *installer) install(ctx context.Context) error {
	if err := i.checkOwner(); err != nil {
		return err
	}
	before := i.installed(ctx)
	if !i.Explicit && newer(before, i.Version) {
		return fmt.Errorf("%s has %s, which is newer than %s. To install the older one anyway: --version %[3]s", i.Dir, before, i.Version)
	}
	if err := i.place(); err != nil {
		return fmt.Errorf("installing the server in %s: %w", i.Dir, err)
	}
	if err := i.link(); err != nil {
		return err
	}
	i.say("Installed %s in %s.", i.Version, i.Dir)
	if i.NoService {
		i.say("No service was registered (--no-service).")
		return nil
	}
	return i.serve(ctx, before)
}

// checkOwner creates the directory, and returns an error if another user could replace the programs in it, which
// root runs.
func (i *installer) checkOwner() error {
	if err := os.MkdirAll(i.Dir, 0o755); err != nil {
		return fmt.Errorf("creating the directory of the server: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil // systemctl refuses the rest
	}
	return initsystem.OnlyRootChanges(i.Dir, "use --dir with a directory that only root can change")
}

// installed returns the version of the installed program, or "".
func (i *installer) installed(ctx context.Context) string {
	version, err := i.runs(ctx, i.program(), "version")
	if err != nil {
		return ""
	}
	return version
}

func newer(installed, version string) bool {
	a, err1 := semver.StrictNewVersion(strings.TrimPrefix(installed, "v"))
	b, err2 := semver.StrictNewVersion(strings.TrimPrefix(version, "v"))
	return err1 == nil && err2 == nil && a.GreaterThan(b)
}

// serve registers and starts the service, unless the administrator has disabled or masked it. If it ran before
// and does not start now, serve restores the previous program.
func (i *installer) serve(ctx context.Context, before string) error {
	state, err := i.service.Describe(ctx)
	if errors.Is(err, systemd.ErrNoManager) {
		i.say("No service was registered: %v.", err)
		return nil
	}
	ran := err == nil && state.Active == "active"
	if err := i.register(ctx, state.Enabled); err != nil {
		return fmt.Errorf("%s is installed, but its service is not: %w; then run: %s service install --start", i.Version, err, i.program())
	}
	if !ran && (state.Enabled == disabled || state.Enabled == masked) {
		i.say("The service is %s, so it was not started.", state.Enabled)
		return nil
	}
	err = i.service.Do(ctx, "restart")
	if err == nil {
		i.say("The service runs. For its log: %s service logs", program)
		return nil
	}
	err = fmt.Errorf("the service does not start with %s: %w", i.Version, err)
	if !ran || before == "" {
		return err
	}
	if back := i.restore(ctx); back != nil {
		return fmt.Errorf("%w; %s does not start either: %w", err, before, back)
	}
	return fmt.Errorf("%w; the service runs with %s again", err, before)
}

// What an administrator has decided about a service.
const (
	disabled = "disabled"
	masked   = "masked"
)

// register registers the service and enables it, unless the administrator has decided otherwise.
func (i *installer) register(ctx context.Context, enabled string) error {
	if enabled == masked {
		return nil
	}
	if err := i.service.Register(ctx); err != nil || enabled == disabled {
		return err
	}
	return i.service.Enable(ctx)
}

func (i *installer) restore(ctx context.Context) error {
	for _, name := range []string{evaluator, program} {
		installed := filepath.Join(i.Dir, name)
		err := os.Rename(installed+previous, installed)
		if err != nil && (name == program || !errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("restoring the previous %s: %w", name, err)
		}
	}
	_, err := i.runs(ctx, i.program(), "service", "install", "--start")
	return err
}

// link makes the program available by its name.
func (i *installer) link() error {
	link := filepath.Join(i.links, program)
	if now, err := os.Readlink(link); err == nil && now == i.program() {
		return nil
	}
	if info, err := os.Lstat(link); err == nil && info.Mode()&fs.ModeSymlink == 0 {
		fmt.Fprintf(i.Err, "warning: %s is not a link of this installation and was left unchanged\n", link)
		return nil
	}
	draft := link + ".new"
	err := os.MkdirAll(i.links, 0o755)
	if err == nil {
		_ = os.Remove(draft) // a leftover of an interrupted installation
		err = os.Symlink(i.program(), draft)
	}
	if err == nil {
		err = os.Rename(draft, link)
	}
	if err != nil {
		return fmt.Errorf("creating the link %s: %w", link, err)
	}
	return nil
}

// remove removes the service and the program. With Purge, it also removes the configuration, the data and
// the account.
func (i *installer) remove(ctx context.Context) error {
	if i.Purge && !i.Yes {
		return errors.New("--purge deletes all data of the server, with the key of all secrets: add --yes to confirm; nothing was removed")
	}
	if !i.NoService {
		err := i.service.Uninstall(ctx)
		if err != nil && !errors.Is(err, initsystem.ErrNotInstalled) && !errors.Is(err, systemd.ErrNoManager) {
			return fmt.Errorf("removing the service: %w; nothing else was removed", err)
		}
	}
	link := filepath.Join(i.links, program)
	if now, err := os.Readlink(link); err == nil && now == i.program() {
		if err := os.Remove(link); err != nil {
			return fmt.Errorf("removing the link: %w", err)
		}
	}
	if err := i.removeFiles(); err != nil {
		return fmt.Errorf("removing the server from %s: %w", i.Dir, err)
	}
	i.say("Removed the server from %s.", i.Dir)
	if i.Purge {
		i.say("Deleting /var/lib/%s, with the data and the key of all secrets.", program)
		return i.purge(ctx)
	}
	i.say("Kept configuration and data (--purge removes them): /etc/%[1]s /var/lib/%[1]s", program)
	return nil
}

// purge deletes the data, the configuration file and the account of the service. A link to data in another
// place is removed alone.
func purge(ctx context.Context) error {
	dir := "/var/lib/" + program
	err := errors.Join(os.RemoveAll(dir), os.RemoveAll("/etc/"+program+"/workflow-server.yaml"))
	if err != nil {
		return fmt.Errorf("deleting configuration and data: %w", err)
	}
	_ = os.Remove("/etc/" + program) // fails if it contains other files
	account, err := user.Lookup(program)
	if err != nil || account.HomeDir != dir || runtime.GOOS != "linux" {
		return nil //nolint:nilerr // there is no account of the service
	}
	_, err = initsystem.Exec{}.Run(ctx, "userdel", program)
	return err
}

func (i *installer) say(format string, values ...any) {
	if !i.Silent {
		fmt.Fprintf(i.Out, format+"\n", values...)
	}
}
