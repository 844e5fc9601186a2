package docker

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/moby/moby/client"

	"workflowagent/internal/workflow"
)

// Facts describes an engine to the operator.
type Facts struct {
	Host          string // the engine's address, in the format of DOCKER_HOST
	Origin        string // where the address was configured
	Version       string
	APIVersion    string // the API version that was negotiated with the engine
	OS, Arch      string // platform of the engine's containers; Arch is a GOARCH value
	Name          string // the engine's host name
	RootDirectory string // the directory on the engine's host that stores images and containers
	Rootless      bool
	SameHost      bool // whether the engine is known to run on the agent's host
	// Open reports whether the engine listens on the network without TLS, so that any process that
	// reaches the engine can control it.
	Open bool
	// Components maps the engine's components to their versions: "Docker Engine", "Docker Desktop",
	// "containerd", "runc".
	Components map[string]string
}

// Examine returns facts about the engine. It returns the same errors as [Executor.Check].
func (e *Executor) Examine(ctx context.Context) (Facts, error) {
	if err := e.Check(ctx); err != nil {
		return Facts{}, err
	}
	engine, err := e.engine()
	if err != nil {
		return Facts{}, err
	}
	version, err := engine.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return Facts{}, explain(engine.DaemonHost(), err)
	}
	found, err := engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return Facts{}, explain(engine.DaemonHost(), err)
	}
	facts := Facts{
		Host: engine.DaemonHost(), Version: version.Version, APIVersion: engine.ClientVersion(), OS: version.Os, Arch: version.Arch,
		Name: found.Info.Name, RootDirectory: found.Info.DockerRootDir,
		Rootless: slices.ContainsFunc(found.Info.SecurityOptions, func(o string) bool { return strings.Contains(o, "rootless") }),
	}
	if at, err := discover(e.opts.Host); err == nil && at.host == facts.Host {
		facts.Origin = at.origin
		facts.Open = at.ca == "" && at.cert == "" && (strings.HasPrefix(at.host, "tcp://") || strings.HasPrefix(at.host, "http://"))
	}
	facts.Components = components(version)
	host, err := os.Hostname()
	facts.SameHost = err == nil && host == facts.Name && local(engine)
	return facts, nil
}

func components(version client.ServerVersionResult) map[string]string {
	out := map[string]string{"Docker Engine": version.Version}
	for _, c := range version.Components {
		if c.Name == "containerd" || c.Name == "runc" {
			out[c.Name] = c.Version
		}
	}
	// The name is, for example, "Docker Desktop 4.44.3 (202357)".
	if rest, ok := strings.CutPrefix(version.Platform.Name, "Docker Desktop "); ok {
		out["Docker Desktop"], _, _ = strings.Cut(rest, " ")
	}
	return out
}

// EnsureImage makes an image available in the same way as [Executor.Prepare], with the configured
// pull policy, and returns the image's architecture.
func (e *Executor) EnsureImage(ctx context.Context, reference string, progress func(line string)) (arch string, err error) {
	engine, err := e.engine()
	if err != nil {
		return "", err
	}
	img, err := e.ensureImage(ctx, engine, &workflow.Image{Reference: reference}, progress)
	return img.arch, err
}

// RemoveRunners removes the volumes with runners and with releases of pulumi of an owner that will run no
// more jobs.
func (e *Executor) RemoveRunners(ctx context.Context, owner string) error {
	engine, err := e.engine()
	if err != nil {
		return err
	}
	all := func(string) bool { return true }
	return errors.Join(
		removeVolumes(ctx, engine, all, labelOwner+"="+owner, labelKind+"="+kindRunner),
		removeVolumes(ctx, engine, all, labelOwner+"="+owner, labelKind+"="+kindPulumi),
	)
}
