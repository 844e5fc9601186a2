package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"workflowagent/internal/workflow"
)

// Facts describe an engine to the operator.
type Facts struct {
	Host          string // its address, as in DOCKER_HOST
	Origin        string // where the address was configured
	Version       string
	APIVersion    string // negotiated with the engine
	OS, Arch      string // of its containers; the architecture as Go names it
	Name          string // of its host
	RootDirectory string // where it keeps images and containers, on its own host
	Rootless      bool
	SameHost      bool // it is known to share the agent's host
	// Open reports that the engine listens on the network without TLS, so any process that
	// reaches it controls it.
	Open bool
	// Components are the versions of the parts that the engine reports, by name: "Docker
	// Engine", "Docker Desktop", "containerd", "runc".
	Components map[string]string
}

// Examine queries the engine. Its errors are those of [Executor.Check].
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
	if at, err := discover(e.opts); err == nil && at.host == facts.Host {
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
	// Such as "Docker Desktop 4.44.3 (202357)".
	if rest, ok := strings.CutPrefix(version.Platform.Name, "Docker Desktop "); ok {
		out["Docker Desktop"], _, _ = strings.Cut(rest, " ")
	}
	return out
}

// EnsureImage gets an image as [Executor.Prepare] does, by the policy of the options, and
// returns its architecture.
func (e *Executor) EnsureImage(ctx context.Context, reference string, progress func(line string)) (arch string, err error) {
	engine, err := e.engine()
	if err != nil {
		return "", err
	}
	img, err := e.ensureImage(ctx, engine, &workflow.Image{Reference: reference}, progress)
	return img.arch, err
}

// RemoveRunners removes the runner volumes of an owner that will have no more jobs.
func (e *Executor) RemoveRunners(ctx context.Context, owner string) error {
	engine, err := e.engine()
	if err != nil {
		return err
	}
	filters := client.Filters{}.Add("label", labelOwner+"="+owner).Add("label", labelKind+"="+kindRunner)
	volumes, err := engine.VolumeList(ctx, client.VolumeListOptions{Filters: filters})
	if err != nil {
		return fmt.Errorf("listing the volumes with runners: %w", err)
	}
	var errs []error
	for _, v := range volumes.Items {
		if _, err := engine.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{}); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("removing the volume %s: %w", v.Name, err))
		}
	}
	return errors.Join(errs...)
}
