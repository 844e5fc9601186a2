package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"workflowagent/internal/dev/lab"
)

const (
	targetAuto    = "auto"
	targetDocker  = "docker"
	targetProcess = "process"
)

// runnerVolumes is the label of the volumes that hold an agent's runner.
const runnerVolumes = "workflowagent.kind=runner"

type place struct {
	target   string            // the agent's deploy_target
	image    string            // the executor image, with docker
	settings map[string]string // settings of the agent
	env      []string          // environment of the agent
	jobEnv   map[string]string // environment of the deployment
}

// choosePlace chooses Docker if an engine responds and an image can be created for it, and
// otherwise processes on this machine. It logs the reason for its choice.
func (q *quickstart) choosePlace(ctx context.Context) (place, error) {
	switch q.target {
	case targetAuto, targetDocker:
		docker, err := q.dockerPlace(ctx)
		if err == nil {
			q.ui.say("deployments will run in containers of the image %s", docker.image)
			return docker, nil
		}
		if q.target == targetDocker || ctx.Err() != nil {
			return place{}, err
		}
		q.ui.say("deployments will run as processes on this machine: %v", err)
		return q.processPlace()
	case targetProcess:
		q.ui.say("deployments will run as processes on this machine")
		return q.processPlace()
	default:
		return place{}, fmt.Errorf("unknown target %q: must be %s, %s or %s", q.target, targetAuto, targetDocker, targetProcess)
	}
}

func (q *quickstart) dockerPlace(ctx context.Context) (place, error) {
	engine, err := q.engine(ctx)
	if err != nil {
		return place{}, err
	}
	// The server is on loopback, so jobs need this machine's network.
	if runtime.GOOS != "linux" {
		return place{}, errors.New("containers of Docker Desktop cannot reach a server on loopback")
	}
	if reason, ok := engine.SharesHostNetwork(ctx); !ok {
		return place{}, errors.New(reason)
	}
	q.ui.say("Docker Engine at %s; creating an executor image from this machine's own files", engine.Host)
	image, err := lab.ExecutorImage(ctx, engine.Host, q.tools)
	if err != nil {
		return place{}, err
	}
	if err := q.leaveNoVolumes(ctx, engine); err != nil {
		return place{}, err
	}
	return place{
		target: "docker", image: image,
		settings: map[string]string{"pull_image": "false"},
		env:      []string{"DOCKER_HOST=" + engine.Host},
	}, nil
}

// leaveNoVolumes makes the cleanup remove the volumes that agents add to an engine. An agent keeps
// its runner's volume for its next job, but this agent has no next job.
func (q *quickstart) leaveNoVolumes(ctx context.Context, engine *lab.Engine) error {
	before, err := engine.Volumes(ctx, runnerVolumes)
	if err != nil {
		return err
	}
	q.undo = append(q.undo, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
		defer cancel()
		after, err := engine.Volumes(ctx, runnerVolumes)
		if err != nil {
			return err
		}
		return engine.RemoveVolumes(ctx, slices.DeleteFunc(after, func(name string) bool {
			return slices.Contains(before, name)
		}))
	})
	return nil
}

func (q *quickstart) engine(ctx context.Context) (*lab.Engine, error) {
	if !q.privateEngine {
		return lab.FindEngine(ctx)
	}
	engine, err := lab.StartEngine(ctx, filepath.Join(q.dir, "engine"))
	if err != nil {
		return nil, err
	}
	q.undo = append(q.undo, engine.Stop)
	return engine, nil
}

func (q *quickstart) processPlace() (place, error) {
	home := filepath.Join(q.dir, "job-home")
	if err := q.tools.Home(home); err != nil {
		return place{}, err
	}
	jobEnv := map[string]string{"PULUMI_HOME": home}
	for _, variable := range q.tools.Quiet() {
		name, value, _ := strings.Cut(variable, "=")
		jobEnv[name] = value
	}
	return place{target: "process", jobEnv: jobEnv}, nil
}
