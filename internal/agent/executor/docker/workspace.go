package docker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/workflow"
)

// workspaceDir is the path of the workspace in the container.
const workspaceDir = "/mnt/pulumi/workspace"

// measureTime is how long an engine may measure its volumes. It measures all of them, also those of
// others.
const measureTime = 2 * time.Minute

// workspaceVolume returns the name of the volume for a scope. Only this agent uses the volume.
func workspaceVolume(owner, scope string) string {
	return "workflow-workspace-" + executor.Digest(owner)[:8] + "-" + scope[:32]
}

// workspaceLabels returns the labels of the volume for the workspace of a job.
func workspaceLabels(spec executor.Spec, img image, now time.Time) map[string]string {
	return map[string]string{
		labelOwner: spec.Owner, labelKind: kindWorkspace, labelScope: spec.Workspace,
		labelStack: spec.Labels["stack"], labelUser: img.user, labelImage: img.id,
		labelCreated: now.UTC().Format(time.RFC3339),
	}
}

// workspace returns the name of the volume for the job's workspace, or "" if the job must run without
// one.
func (e *Executor) workspace(ctx context.Context, engine *client.Client, spec executor.Spec, img image, progress func(string)) string {
	if !workflow.IsScope(spec.Workspace) {
		return ""
	}
	volume := workspaceVolume(spec.Owner, spec.Workspace)
	if err := makeRoom(ctx, engine, volume, workspaceLabels(spec, img, time.Now())); err != nil {
		progress("Running without a workspace: " + engineText(err.Error()))
		return ""
	}
	return volume
}

// makeRoom returns nil if the job can mount the volume. It removes the workspace of an image with another
// user, because this job's user could not change the files in it.
func makeRoom(ctx context.Context, engine *client.Client, volume string, want map[string]string) error {
	found, err := engine.VolumeInspect(ctx, volume, client.VolumeInspectOptions{})
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("inspecting the volume %s: %w", volume, err)
	}
	has := found.Volume.Labels
	if !isWorkspace(has, want[labelOwner], want[labelScope]) {
		return fmt.Errorf("the volume %s does not belong to this agent: remove it", volume)
	}
	// The name of a user can have another number in another image. Root can change the files of all users.
	if has[labelUser] == want[labelUser] && (isRoot(has[labelUser]) || has[labelImage] == want[labelImage]) {
		return nil
	}
	_, err = engine.VolumeRemove(ctx, volume, client.VolumeRemoveOptions{})
	if errdefs.IsConflict(err) {
		return fmt.Errorf("a job with another image uses it: %w", executor.ErrInUse)
	}
	return ignoreGone(err)
}

func isWorkspace(labels map[string]string, owner, scope string) bool {
	return labels[labelOwner] == owner && labels[labelKind] == kindWorkspace && labels[labelScope] == scope && workflow.IsScope(scope)
}

// isRoot reports whether an image's user is root.
func isRoot(user string) bool {
	name, _, _ := strings.Cut(user, ":")
	return name == "" || name == "0" || name == "root"
}

func workspaceMount(volume string, labels map[string]string) mount.Mount {
	return mount.Mount{
		Type: mount.TypeVolume, Source: volume, Target: workspaceDir,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: labels},
	}
}

// Workspaces returns the workspaces of owner's jobs. An engine does not record when a volume was last
// used, so Used is the time of its creation.
func (e *Executor) Workspaces(ctx context.Context, owner string) ([]executor.Workspace, error) {
	engine, err := e.engine()
	if err != nil {
		return nil, err
	}
	filters := client.Filters{}.Add("label", labelOwner+"="+owner, labelKind+"="+kindWorkspace)
	volumes, err := engine.VolumeList(ctx, client.VolumeListOptions{Filters: filters})
	if err != nil {
		return nil, fmt.Errorf("listing the volumes of workspaces: %w", err)
	}
	if len(volumes.Items) == 0 {
		return nil, nil
	}
	containers, err := engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelOwner+"="+owner)})
	if err != nil {
		return nil, fmt.Errorf("listing the containers that use workspaces: %w", err)
	}
	used := map[string]bool{}
	for _, c := range containers.Items {
		for _, m := range c.Mounts {
			used[m.Name] = true
		}
	}
	sizes := e.volumeSizes(ctx, engine)
	var all []executor.Workspace
	for _, v := range volumes.Items {
		scope := v.Labels[labelScope]
		if !isWorkspace(v.Labels, owner, scope) || v.Name != workspaceVolume(owner, scope) {
			continue
		}
		w := executor.Workspace{Scope: scope, Stack: v.Labels[labelStack], Bytes: -1, InUse: used[v.Name]}
		w.Used, _ = time.Parse(time.RFC3339, v.Labels[labelCreated])
		if bytes, ok := sizes[v.Name]; ok {
			w.Bytes = bytes
		}
		all = append(all, w)
	}
	return all, nil
}

// volumeSizes returns the known sizes of the engine's volumes in bytes.
func (e *Executor) volumeSizes(ctx context.Context, engine *client.Client) map[string]int64 {
	ctx, cancel := context.WithTimeout(ctx, measureTime)
	defer cancel()
	usage, err := engine.DiskUsage(ctx, client.DiskUsageOptions{Volumes: true, Verbose: true})
	if before := e.unmeasured.Swap(err != nil); err != nil {
		if !before { // else it is in the log already
			e.opts.Log.WithError(err).Warn("the Docker Engine did not measure its volumes: workspace_max_size has no effect until it does")
		}
		return nil
	}
	sizes := map[string]int64{}
	for _, v := range usage.Volumes.Items {
		if v.UsageData != nil && v.UsageData.Size >= 0 {
			sizes[v.Name] = v.UsageData.Size
		}
	}
	return sizes
}

// RemoveWorkspace removes the volume of a workspace. The engine refuses that while a container has the
// volume, so no job can start to use it meanwhile.
func (e *Executor) RemoveWorkspace(ctx context.Context, owner, scope string) error {
	if !workflow.IsScope(scope) {
		return fmt.Errorf("%q is not the scope of a workspace", scope)
	}
	engine, err := e.engine()
	if err != nil {
		return err
	}
	volume := workspaceVolume(owner, scope)
	found, err := engine.VolumeInspect(ctx, volume, client.VolumeInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("inspecting the volume %s: %w", volume, err)
	case !isWorkspace(found.Volume.Labels, owner, scope):
		return fmt.Errorf("the volume %s does not belong to this agent", volume)
	}
	_, err = engine.VolumeRemove(ctx, volume, client.VolumeRemoveOptions{})
	switch {
	case errdefs.IsConflict(err):
		return executor.ErrInUse
	case err != nil && !errdefs.IsNotFound(err):
		return fmt.Errorf("removing the volume %s: %w", volume, err)
	}
	return nil
}

// CleanWorkspaces does nothing: the engine removes a volume as a whole.
func (e *Executor) CleanWorkspaces(context.Context) error { return nil }

// WorkspaceSpace returns the number of free bytes on the engine's disk, if the engine is on this host and
// the agent can see its directory.
func (e *Executor) WorkspaceSpace(ctx context.Context) int64 {
	engine, err := e.engine()
	if err != nil || !local(engine) {
		return -1
	}
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	info, err := engine.Info(ctx, client.InfoOptions{})
	if err != nil || info.Info.DockerRootDir == "" {
		return -1
	}
	free, err := executor.FreeSpace(info.Info.DockerRootDir)
	if err != nil {
		return -1
	}
	return free
}

var _ executor.WorkspaceKeeper = (*Executor)(nil)
