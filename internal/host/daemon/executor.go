package daemon

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/docker"
	"workflowagent/internal/agent/executor/process"
	"workflowagent/internal/sys/procs"
)

func newExecutor(c *config.Config, log *logrus.Entry) (executor.Executor, error) {
	switch c.DeployTarget {
	case config.TargetDocker:
		return docker.New(docker.Options{
			Config: c.Docker, WorkingDirectory: c.WorkingDirectory, SharedVolumeDirectory: c.SharedVolumeDirectory, Log: log,
		})
	case config.TargetKubernetes:
		return newCluster(c, log)
	case config.TargetProcess:
		runner, err := executor.FindRunner(c.WorkingDirectory)
		if err != nil {
			return nil, config.Invalid(err)
		}
		hidden, err := procs.Hidden()
		if err != nil {
			return nil, err
		}
		if hidden {
			// The agent would take runners for dead and report their jobs as lost while they run.
			return nil, config.Invalid(errors.New("jobs of deploy_target process need an agent that sees its processes, which this sandbox or the option hidepid of /proc prevents: run customer-managed-workflow-agent service install --process --start"))
		}
		return process.New(process.Options{RunnerPath: runner, BaseDir: processDir(c), Workspaces: workspaceDir(c), Log: log})
	}
	return nil, config.Invalid(fmt.Errorf("deploy_target %q is unknown: use docker, kubernetes or process", c.DeployTarget))
}

// processDir returns the directory of the jobs that run as processes.
func processDir(c *config.Config) string {
	if c.SharedVolumeDirectory != "" {
		return filepath.Join(c.SharedVolumeDirectory, "workflow-processes")
	}
	return filepath.Join(c.StateDirectory, "processes")
}
