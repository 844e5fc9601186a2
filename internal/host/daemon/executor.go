package daemon

import (
	"fmt"
	"path/filepath"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/docker"
	"workflowagent/internal/agent/executor/process"
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
