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
		pids := c.DockerPidsLimit
		if pids == 0 {
			pids = -1 // no limit, because 0 means the executor's default
		}
		return docker.New(docker.Options{
			Host:                  c.DockerHost,
			PullImage:             c.PullImage,
			RunnerDir:             c.WorkingDirectory,
			SharedVolumeDirectory: c.SharedVolumeDirectory,
			Network:               c.DockerNetwork,
			ServerAddress:         c.DockerServerAddress,
			Memory:                c.DockerMemory,
			CPUs:                  c.DockerCPUs,
			PidsLimit:             pids,
			Log:                   log,
		})
	case config.TargetKubernetes:
		return newCluster(c, log)
	case config.TargetProcess:
		runner, err := executor.FindRunner(c.WorkingDirectory)
		if err != nil {
			return nil, config.Invalid(err)
		}
		base := filepath.Join(c.StateDirectory, "processes")
		if c.SharedVolumeDirectory != "" {
			base = filepath.Join(c.SharedVolumeDirectory, "workflow-processes")
		}
		return process.New(process.Options{RunnerPath: runner, BaseDir: base, Log: log})
	}
	return nil, config.Invalid(fmt.Errorf("deploy_target %q is unknown: use docker, kubernetes or process", c.DeployTarget))
}
