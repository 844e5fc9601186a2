package daemon

import (
	"context"
	"errors"
	"io"
	"path/filepath"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/docker"
	"workflowagent/internal/agent/executor/process"
	"workflowagent/internal/agent/executor/workspacedir"
	"workflowagent/internal/agent/instance"
	"workflowagent/internal/agent/workspace"
)

// workspaceDir returns the directory of the records of workspaces, and of the workspaces of processes.
func workspaceDir(c *config.Config) string { return filepath.Join(c.StateDirectory, "workspaces") }

// newKeeper returns a keeper of the workspaces of one agent in a place.
func newKeeper(c *config.Config, place executor.WorkspaceKeeper, owner string, log *logrus.Entry) *workspace.Keeper {
	return workspace.New(workspace.Options{
		Place: place, Owner: owner, Dir: workspaceDir(c), Log: log,
		Limits: workspace.Limits{Bytes: c.WorkspaceMaxSize, Age: c.WorkspaceMaxAge, None: !c.Agent.Workspaces},
	})
}

// Workspaces are those of all agents that share a state directory, for the operator's commands. These work
// whether or not the agents run.
type Workspaces struct {
	keepers []*workspace.Keeper
	closing func() error
}

// OpenWorkspaces opens the workspaces of a configuration, or those in a directory if dir is not "". It
// creates nothing, because it can run as another user than the agent.
func OpenWorkspaces(c *config.Config, dir string) (*Workspaces, error) {
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	log := logrus.NewEntry(quiet)
	w := &Workspaces{closing: func() error { return nil }}
	switch {
	case dir != "":
		w.keepers = append(w.keepers, newKeeper(c, workspacedir.New(dir, nil), "", log))
	case c.DeployTarget == config.TargetProcess:
		used := func() (map[string]bool, error) { return process.UsedWorkspaces(processDir(c)) }
		w.keepers = append(w.keepers, newKeeper(c, workspacedir.New(workspaceDir(c), used), "", log))
	case c.DeployTarget == config.TargetDocker:
		place, err := docker.New(docker.Options{Config: c.Docker, Log: log})
		if err != nil {
			return nil, err
		}
		w.closing = place.Close
		for _, owner := range instance.KnownIDs(c.StateDirectory) {
			w.keepers = append(w.keepers, newKeeper(c, place, owner, log))
		}
	default:
		return nil, config.Invalid(errors.New("deploy_target is kubernetes, where the agent does not see the workspaces: " +
			"use --directory DIR in a pod that mounts their volume (docs/caches.md)"))
	}
	return w, nil
}

// List returns the workspaces, the most recently used one of each agent first.
func (w *Workspaces) List(ctx context.Context) ([]executor.Workspace, error) {
	all := []executor.Workspace{}
	for _, k := range w.keepers {
		list, err := k.List(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// Prune removes the workspaces that exceed the limits, or all, except those that jobs use.
func (w *Workspaces) Prune(ctx context.Context, all bool) (workspace.Usage, error) {
	var sum workspace.Usage
	var errs []error
	for _, k := range w.keepers {
		u, err := k.Prune(ctx, all)
		errs = append(errs, err)
		sum.Count += u.Count
		sum.Bytes += u.Bytes
		sum.InUse += u.InUse
		sum.Removed = append(sum.Removed, u.Removed...)
	}
	return sum, errors.Join(errs...)
}

// Close releases connections.
func (w *Workspaces) Close() error { return w.closing() }
