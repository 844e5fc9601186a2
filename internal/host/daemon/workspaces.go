package daemon

import (
	"path/filepath"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor"
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
