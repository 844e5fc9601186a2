package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	kardianos "github.com/kardianos/service"

	"workflowagent/internal/agent/control"
	"workflowagent/internal/host/release"
	"workflowagent/internal/host/service"
	"workflowagent/internal/host/upkeep"
	"workflowagent/internal/retry"
	"workflowagent/internal/termtext"
)

// exitTime is the maximum time that processes may take to exit after the service has stopped.
const exitTime = 5 * time.Second

// pruneTime bounds the removal of what the agent keeps for later jobs.
const pruneTime = time.Minute

// remove removes the service and the programs. With Purge, it also removes the configuration and
// the state.
func (i *installer) remove(ctx context.Context) error {
	root := i.at.Root
	if i.at.Version == "" && (!i.Purge || len(i.kept()) == 0) {
		i.say("There is no agent in %s.", root)
		return nil
	}
	if i.Purge {
		if err := i.checkPurge(ctx); err != nil {
			return err
		}
	}
	s, state, err := i.installedService(ctx)
	if err != nil {
		return fmt.Errorf("reading the state of the service: %w; nothing was removed", err)
	}
	ran := state.Active == "active"
	if ran {
		if err := s.Stop(); err != nil {
			return fmt.Errorf("stopping the service: %w; nothing was removed", err)
		}
	}
	if err := i.waitForProcesses(ctx); err != nil {
		if ran {
			err = errors.Join(err, s.Start())
		}
		return err
	}
	if s != nil {
		if err := s.Uninstall(); err != nil {
			return fmt.Errorf("removing the service: %w; nothing else was removed", err)
		}
		i.say("Removed the service.")
	}
	if i.System {
		if err := i.unlinkSystem(); err != nil {
			return fmt.Errorf("removing the links in %s: %w", systemLinks, err)
		}
	}
	i.removeWorkspaces(ctx)
	if err := i.at.Remove(); err != nil {
		return fmt.Errorf("removing %s: %w", root, err)
	}
	i.say("Removed the agent from %s.", root)
	if i.Purge {
		if err := i.forget(ctx); err != nil {
			return err
		}
	} else if kept := i.kept(); len(kept) > 0 {
		i.say("Kept configuration and state (--uninstall --purge removes them):\n%s", strings.Join(kept, "\n"))
	}
	if profile := i.profile(); !i.System && profile != "" {
		if text, err := os.ReadFile(profile); err == nil && strings.Contains(string(text), i.profileLine()) {
			i.say("%s still has the line: %s", profile, i.profileLine())
		}
	}
	return nil
}

// checkPurge asks for confirmation. It returns an error if the user does not confirm, or if
// deployments whose files would be removed are running.
func (i *installer) checkPurge(ctx context.Context) error {
	for _, instance := range i.instances() {
		if report, err := instance.Status(ctx); err == nil && len(report.Jobs) > 0 {
			return fmt.Errorf("deployments run on this machine, and --purge would remove their files: wait for them with %s drain --wait, or omit --purge", release.Program)
		}
	}
	kept := i.kept()
	tty := i.terminal()
	if len(kept) == 0 || i.Yes || tty == nil {
		return nil
	}
	fmt.Fprintln(tty, strings.Join(kept, "\n"))
	_ = tty.Close() // every write has completed
	if !i.ask("Delete these, too?") {
		return errors.New("nothing was removed")
	}
	return nil
}

// installedService returns the installation's service, or nil if none is registered.
func (i *installer) installedService(ctx context.Context) (service.Service, service.State, error) {
	if i.NoService {
		return nil, service.State{}, nil
	}
	s, err := i.open(i.service())
	var state service.State
	if err == nil {
		state, err = s.Describe(ctx)
	}
	if errors.Is(err, service.ErrNoManager) || errors.Is(err, kardianos.ErrNotInstalled) {
		return nil, service.State{}, nil
	}
	return s, state, err
}

func (i *installer) waitForProcesses(ctx context.Context) error {
	if i.Yes {
		return nil
	}
	for deadline := time.Now().Add(exitTime); ; {
		used, err := i.at.InUse()
		if err != nil || !used {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("nothing was removed: programs in %s are still running, for example for deployments with deploy_target process; "+
				"wait until they finish (%s%s drain --wait), or use --yes, which makes their next step fail", i.at.Root, i.sudo(), release.Program)
		}
		if err := retry.Sleep(ctx, time.Second/4); err != nil {
			return err
		}
	}
}

// removeWorkspaces runs the installed agent to remove what it keeps for later jobs, because only the agent
// knows the volumes of an engine. It keeps what running deployments use. Earlier versions lack the command.
func (i *installer) removeWorkspaces(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pruneTime)
	defer cancel()
	prune := exec.CommandContext(ctx, filepath.Join(i.at.Root, release.Program), "cache", "prune", "--all")
	prune.WaitDelay = exitTime
	if out, err := prune.CombinedOutput(); err != nil && prune.ProcessState != nil && prune.ProcessState.ExitCode() != 2 {
		i.say("Workspaces of deployments may remain: %s", termtext.LastLine(string(out), 0))
	}
}

// kept returns the existing paths that an uninstall without --purge does not remove: configuration,
// environment and state.
func (i *installer) kept() []string {
	var all []string
	if i.System {
		for _, name := range append(configurations, release.Program+".env", release.Program+".choices") {
			all = append(all, filepath.Join("/etc", name))
		}
		all = append(all, i.ownState())
	} else {
		for _, name := range configurations {
			all = append(all, filepath.Join(i.at.Root, name))
		}
		if i.home != "" {
			settings := directory("XDG_CONFIG_HOME", i.home, ".config")
			all = append(all, filepath.Join(settings, release.Program+".env"), filepath.Join(settings, release.Program+".choices"), i.ownState())
		}
	}
	var found []string
	for _, name := range all {
		if _, err := os.Lstat(name); err == nil {
			found = append(found, name)
		}
	}
	return found
}

func directory(variable, home, usual string) string {
	if dir := os.Getenv(variable); dir != "" {
		return dir
	}
	return filepath.Join(home, usual)
}

// instances returns the instances of agents that might use the installation's state.
func (i *installer) instances() []control.Instance {
	dirs := []string{i.ownState()}
	if configured, err := upkeep.StateDirectory(i.service()); err == nil && configured != dirs[0] {
		dirs = append(dirs, configured)
	}
	var all []control.Instance
	for _, dir := range dirs {
		found, _ := control.Find(dir) // an agent in an unreadable directory cannot be reached
		all = append(all, found...)
	}
	return all
}

// ownState returns the default state directory of the installation's service.
func (i *installer) ownState() string {
	if i.System {
		return "/var/lib/workflow-agent"
	}
	return filepath.Join(directory("XDG_STATE_HOME", i.home, ".local/state"), "workflow-agent")
}

// forget removes the configuration, the state and, for a system installation on Linux, the
// service's account.
func (i *installer) forget(ctx context.Context) error {
	if _, err := user.Lookup(service.SystemUser); err == nil && i.System && runtime.GOOS == "linux" {
		if out, _ := exec.CommandContext(ctx, "ps", "-u", service.SystemUser, "-o", "pid=").Output(); len(strings.TrimSpace(string(out))) > 0 {
			return fmt.Errorf("processes of deployments still run as %s: when they have ended, run --uninstall --purge again", service.SystemUser)
		}
		_ = exec.CommandContext(ctx, "userdel", service.SystemUser).Run() // if userdel is missing, the account remains
	}
	for _, name := range i.kept() {
		if err := os.RemoveAll(name); err != nil {
			return fmt.Errorf("removing configuration and state: %w", err)
		}
	}
	_ = os.Remove(i.at.Root) // fails if the directory contains other files
	i.say("Removed configuration and state.")
	return nil
}
