package docker

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/workflow"
)

type sent struct {
	Config     *container.Config
	HostConfig *container.HostConfig
}

// TestContainersAsSent compares container descriptions with testdata/containers.json. A change to
// that file can change the rights of jobs.
func TestContainersAsSent(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	job := executor.Spec{
		JobID: "job-1", Epoch: 3, Owner: "agent-1", Labels: map[string]string{"stack": "org/project/stack", "owner": "forged"},
		Image: &workflow.Image{Reference: "pulumi/pulumi:latest"}, OS: "linux",
	}
	img, runner := image{id: "sha256:1", ref: "pulumi/pulumi:latest"}, runnerFile{arch: "amd64", volume: "workflow-runner-1"}
	all := map[string]sent{}
	for name, o := range map[string]Options{
		"job with the defaults": {},
		"job with all settings": {SharedVolumeDirectory: "/srv/jobs", Config: Config{Network: "jobs", Memory: 1 << 30, CPUs: 1.5, PidsLimit: 100}},
	} {
		c := &creation{Executor: newExecutor(t, o), spec: job, job: newJobOf(job, o), image: img, runner: runner, at: now}
		config, host := c.container(o.Network)
		all[name] = sent{config, host}
	}
	kept := job
	kept.Workspace = strings.Repeat("0123456789abcdef", 4)
	c := &creation{
		Executor: newExecutor(t, Options{}), spec: kept, job: newJobOf(kept, Options{}), image: image{id: "sha256:1", user: "worker"},
		runner: runner, workspace: workspaceVolume(kept.Owner, kept.Workspace), at: now,
	}
	config, host := c.container("")
	all["job with a workspace"] = sent{config, host}
	c = &creation{spec: job, job: newJobOf(job, Options{}), image: img, runner: runner, at: now}
	config, host = c.fillContainer(runnerMount(job.Owner, runner, false))
	all["copy of the runner, never started"] = sent{config, host}
	config, host = c.tryContainer()
	all["test of the runner"] = sent{config, host}
	for name, s := range all {
		// The attack CVE-2024-21626 requires an image that chooses the working directory.
		if s.Config.WorkingDir != "/" {
			t.Errorf("%s: the image chooses the working directory", name)
		}
	}
	got, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	path := filepath.Join("testdata", "containers.json")
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the descriptions differ from %s (%v):\n%s", path, err, got)
	}
}

func newJobOf(spec executor.Spec, o Options) job {
	j := job{Name: executor.ObjectName(spec.Owner, spec.JobID, spec.Epoch), JobDir: defaultJobDir, Engine: "unix:///run/docker.sock"}
	if o.SharedVolumeDirectory != "" {
		j.Shared = filepath.Join(o.SharedVolumeDirectory, j.Name)
	}
	return j
}

// TestContainerAsRun runs an image whose working directory is outside the container
// (CVE-2024-21626).
func TestContainerAsRun(t *testing.T) {
	host, runnerDir := needEngine(t)
	const hostile = "workflowagent/executortest:hostile"
	err := importImage(engine.lab, hostile, "WORKDIR /proc/self/fd/8", "VOLUME /var/run", "EXPOSE 2375", `ENTRYPOINT ["/bin/evil"]`, `CMD ["evil"]`)
	if err != nil {
		t.Fatal(err)
	}
	e := newExecutor(t, Options{Config: Config{Host: host}, WorkingDirectory: runnerDir})
	defer e.Close()
	h, err := prepare(t, e, spec(hostile))
	if err != nil {
		t.Fatal(err)
	}
	found, err := labClient(t).ContainerInspect(t.Context(), jobOf(t, h).Name, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, hc := found.Container.Config, found.Container.HostConfig
	type part struct {
		WorkingDir, StopSignal                                      string
		Entrypoint, Cmd, CapAdd, CapDrop, SecurityOpt, Binds, Links []string
		Privileged, Init, PublishAllPorts, AutoRemove               bool
		NetworkMode, PidMode, IpcMode, UTSMode, UsernsMode, Cgroup  string
		Devices, Ports, VolumesFrom                                 int
		LogType, Restart                                            string
	}
	got := part{
		c.WorkingDir, c.StopSignal, c.Entrypoint, c.Cmd, hc.CapAdd, hc.CapDrop, hc.SecurityOpt, hc.Binds, hc.Links,
		hc.Privileged, hc.Init != nil && *hc.Init, hc.PublishAllPorts, hc.AutoRemove,
		string(hc.NetworkMode), string(hc.PidMode), string(hc.IpcMode), string(hc.UTSMode), string(hc.UsernsMode), string(hc.Cgroup),
		len(hc.Devices) + len(hc.DeviceRequests) + len(hc.DeviceCgroupRules), len(hc.PortBindings), len(hc.VolumesFrom),
		hc.LogConfig.Type, string(hc.RestartPolicy.Name),
	}
	want := part{
		WorkingDir: "/", StopSignal: "SIGINT", Entrypoint: []string{runnerPath, "run", "--job-dir", defaultJobDir},
		CapDrop: []string{"AUDIT_WRITE", "MKNOD", "NET_RAW"}, SecurityOpt: []string{"no-new-privileges"}, Init: true,
		NetworkMode: got.NetworkMode, IpcMode: "private", LogType: "local", Restart: "no",
	}
	for i, caps := range got.CapDrop { // newer engines add the prefix CAP_
		got.CapDrop[i] = strings.TrimPrefix(caps, "CAP_")
	}
	a, errA := json.Marshal(got)
	b, errB := json.Marshal(want)
	if errA != nil || errB != nil || string(a) != string(b) {
		t.Errorf("the container is\n%s, want\n%s", a, b)
	}
	if mode := got.NetworkMode; mode != "default" && mode != "bridge" {
		t.Errorf("network mode %q", mode)
	}
	if err := e.Start(t.Context(), h, []byte(`{"actions":[{"workingDir":true}]}`)); err != nil {
		t.Fatal(err)
	}
	if exit, err := e.Wait(t.Context(), h); err != nil || exit.Code != 0 {
		t.Fatalf("Wait: %+v, %v", exit, err)
	}
	output, err := e.Output(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	var said bytes.Buffer
	if _, err := said.ReadFrom(output); err != nil || said.String() != "/\n" {
		t.Errorf("the job runs in %q, %v", said.String(), err)
	}
}
