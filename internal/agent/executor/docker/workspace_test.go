package docker

import (
	"bytes"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/must"
)

// inWorkspace runs a job that adds a file to its workspace, and returns its output and the lines of
// Prepare.
func inWorkspace(t *testing.T, e *Executor, s executor.Spec, file string) (output, lines string) {
	t.Helper()
	s.JobID, s.Epoch = strings.ToLower(strings.ReplaceAll(t.Name(), "/", "_")), 1
	var said strings.Builder
	h := must.Get(e.Prepare(t.Context(), s, func(line string) { said.WriteString(line + "\n") }))(t)
	must.OK(t, e.Start(t.Context(), h, []byte(`{"actions":[{"workspace":"`+file+`"}]}`)))
	if exit, err := e.Wait(t.Context(), h); err != nil || exit.Code != 0 {
		t.Errorf("the job ended with %+v, %v", exit, err)
	}
	stream := must.Get(e.Output(t.Context(), h))(t)
	defer stream.Close()
	var out bytes.Buffer
	must.Get(out.ReadFrom(stream))(t)
	must.OK(t, e.Remove(t.Context(), h))
	return strings.TrimSpace(out.String()), said.String()
}

// TestWorkspaceOfAnotherUser runs jobs of one scope in images with different users, who cannot remove
// each other's files.
func TestWorkspaceOfAnotherUser(t *testing.T) {
	host, runnerDir := needEngine(t)
	e := newExecutor(t, Options{Config: Config{Host: host, Network: "none"}, WorkingDirectory: runnerDir})
	defer e.Close()
	s := executor.Spec{OS: "linux", Owner: "owner-" + t.Name(), Workspace: strings.Repeat("ab", 32), RootPath: "/tmp"}
	for _, step := range []struct{ image, file, want string }{
		{testImage, "first", "in the workspace"},
		{testImage, "second", "found first\nin the workspace"},
		{testUserImage, "third", "in the workspace"},
		{testUserImage, "fourth", "found third\nin the workspace"},
		{testImage, "fifth", "in the workspace"},
	} {
		s.Image = spec(step.image).Image
		if got, lines := inWorkspace(t, e, s, step.file); got != step.want {
			t.Errorf("the %s job printed %q, want %q\n%s", step.file, got, step.want, lines)
		}
	}
	must.OK(t, e.RemoveWorkspace(t.Context(), s.Owner, s.Workspace))
}

// TestForeignVolume occupies the name of a workspace's volume.
func TestForeignVolume(t *testing.T) {
	host, runnerDir := needEngine(t)
	e := newExecutor(t, Options{Config: Config{Host: host, Network: "none"}, WorkingDirectory: runnerDir})
	defer e.Close()
	s := spec(testImage)
	s.Owner, s.Workspace = "owner-"+t.Name(), strings.Repeat("cd", 32)
	foreign := workspaceVolume(s.Owner, s.Workspace)
	docker := labClient(t)
	must.Get(docker.VolumeCreate(t.Context(), client.VolumeCreateOptions{Name: foreign, Labels: map[string]string{labelOwner: "another"}}))(t)
	got, lines := inWorkspace(t, e, s, "first")
	if got != "no workspace" || !strings.Contains(lines, "Running without a workspace: the volume "+foreign) {
		t.Errorf("the job printed %q, and Prepare\n%s", got, lines)
	}
	if err := e.RemoveWorkspace(t.Context(), s.Owner, s.Workspace); err == nil {
		t.Error("the executor removes a volume of another program")
	}
	if all, err := e.Workspaces(t.Context(), s.Owner); len(all) > 0 || err != nil {
		t.Errorf("the executor lists %v, %v", all, err)
	}
	must.Get(docker.VolumeRemove(t.Context(), foreign, client.VolumeRemoveOptions{}))(t)
}
