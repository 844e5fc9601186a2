package engine

import (
	"bytes"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

const plantedSecret = "planted-4be07d31"

// keeper is a stack whose jobs keep a workspace in a volume. Each job runs step.sh of its commit.
type keeper struct {
	t      *testing.T
	stack  *harness.Stack
	repo   *lab.Repo
	docker *client.Client
}

func (k *keeper) queue(branch, script string) harness.Deployment {
	k.t.Helper()
	ctx := k.t.Context()
	must.Get(k.repo.Commit(ctx, branch, "Step", map[string]string{"step.sh": script}))(k.t)
	request := map[string]any{"operation": "preview", "inheritSettings": true}
	if branch != lab.MainBranch {
		request["sourceContext"] = map[string]any{"git": map[string]any{"branch": "refs/heads/" + branch}}
	}
	var d harness.Deployment
	must.OK(k.t, k.stack.W.Server.Call(ctx, http.MethodPost, strings.TrimSuffix(k.stack.Path(""), "/"), request, &d))
	return d
}

func (k *keeper) run(branch, script, status string) (log string) {
	k.t.Helper()
	return k.finish(k.queue(branch, script), status)
}

func (k *keeper) finish(d harness.Deployment, status string) (log string) {
	k.t.Helper()
	d = k.stack.Finish(k.t.Context(), k.t, d)
	log = k.stack.Log(k.t.Context(), k.t, d)
	if d.Status != status {
		k.t.Fatalf("deployment %d %s (%s %s), not %s:\n%s", d.Version, d.Status, d.Reason, d.Message, status, log)
	}
	return log
}

// volumes returns the directories of all workspaces on this machine.
func (k *keeper) volumes() (dirs []string) {
	k.t.Helper()
	list := must.Get(k.docker.VolumeList(k.t.Context(), client.VolumeListOptions{
		Filters: client.Filters{}.Add("label", "workflowagent.kind=workspace"),
	}))(k.t)
	for _, v := range list.Items {
		dirs = append(dirs, v.Mountpoint)
	}
	return dirs
}

// begun waits until the job of a deployment has written a file, and returns the job's workspace.
func (k *keeper) begun(d harness.Deployment) (dir string) {
	k.t.Helper()
	err := harness.Until(k.t.Context(), func() (bool, error) {
		for _, dir = range k.volumes() {
			if _, err := os.Lstat(filepath.Join(dir, "begun")); err == nil {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		k.t.Fatalf("the job did not begin: %v\n%s", err, k.stack.Log(k.t.Context(), k.t, d))
	}
	return dir
}

const (
	// look prints the marks that a job finds in its workspace.
	look = "for mark in /mnt/pulumi/workspace/caches/*/mark-*; do echo \"SEES $mark\"; done\n"
	// wait lets the test act while the job runs.
	wait = "echo x > /mnt/pulumi/workspace/begun\nwhile [ ! -e /mnt/pulumi/workspace/go ]; do sleep 0.05; done\n"
)

func mark(name string) string {
	return "mkdir -p /mnt/pulumi/workspace/caches/npm && echo x > /mnt/pulumi/workspace/caches/npm/mark-" + name + "\n"
}

func sees(log, name string) bool { return strings.Contains(log, "/mark-"+name+"\n") }

// TestEngineWorkspaces has jobs in containers attack the workspaces of later jobs, and kills agent, runner and
// engine while a job has its workspace.
func TestEngineWorkspaces(t *testing.T) {
	if reason, ok := lab.PrivateEngineAvailable(); !ok {
		t.Skip(reason)
	}
	t.Setenv("DOCKER_HOST", "") // the test kills its engine, so it starts its own
	ctx := t.Context()
	w, engine, image := harness.StartEngineSite(t, harness.OnLoopback)
	agent := must.Get(w.StartAgent(ctx, "docker", map[string]string{"pull_image": "false"}, "DOCKER_HOST="+engine.Host))(t)
	k := &keeper{t: t, docker: must.Get(engine.Client())(t), repo: w.Repo(ctx, t), stack: w.NewStack(ctx, t, "box", "dev", image, nil)}
	t.Cleanup(func() { _ = k.docker.Close() })
	must.OK(t, w.Server.Call(ctx, http.MethodPut, k.stack.Path("settings"), map[string]any{
		"executorContext": map[string]any{"executorImage": map[string]string{"reference": image}},
		"sourceContext": map[string]any{"git": map[string]any{
			"repoUrl": k.repo.URL, "branch": "refs/heads/main",
			"gitAuth": map[string]any{"basicAuth": map[string]any{"userName": "git", "password": map[string]string{"secret": plantedSecret}}},
		}},
		"operationContext": map[string]any{
			"environmentVariables": map[string]any{"PLANTED": map[string]string{"secret": plantedSecret}},
			"preRunCommands":       []string{"sh ./step.sh"},
		},
		"cacheOptions": map[string]any{"enable": true},
	}, nil))

	k.run("main", mark("own"), "succeeded")
	own := k.volumes()
	if len(own) != 1 {
		t.Fatalf("the workspaces are %v", own)
	}
	if log := k.run("feature", look+mark("feature"), "succeeded"); sees(log, "own") {
		t.Errorf("the job of another branch sees the workspace of the own branch:\n%s", log)
	}
	if all := k.volumes(); len(all) != 2 {
		t.Errorf("the workspaces of two classes are %v", all)
	}
	canary := filepath.Join(t.TempDir(), "canary")
	harness.Write(t, canary, []byte("kept"), 0o600)
	log := k.run("main", look+`set -e
cd /mnt/pulumi/workspace
mkfifo fifo caches/fifo; mknod caches/sda b 8 0 || true; ln -s / caches/root; ln -s `+canary+` caches/canary
truncate -s 1099511627776 caches/npm/sparse; chown -R 4711:4711 caches/npm; mkdir closed caches/npm/closed; chmod 0 closed
echo $PLANTED > note; printf %s $PLANTED > caches/note; ln -s /etc plugins/etc
`, "succeeded")
	if !sees(log, "own") || sees(log, "feature") {
		t.Errorf("the job of the own branch does not find only its own workspace:\n%s", log)
	}
	if log := k.run("main", look, "succeeded"); !sees(log, "own") || strings.Contains(log, "SEES /mnt/pulumi/workspace/caches/root") {
		t.Errorf("after hostile leftovers, the job finds:\n%s", log)
	}
	if string(harness.Read(t, canary)) != "kept" {
		t.Error("a job changed a file outside of its workspace")
	}
	k.noSecrets(t)

	t.Run("held by another job", func(t *testing.T) {
		k.t = t
		lock := must.Get(os.OpenFile(filepath.Join(own[0], "lock"), os.O_RDWR, 0))(t)
		must.OK(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
		log := k.run("main", look, "succeeded")
		if !strings.Contains(log, "Workspace: not used: another job of this stack is using it") {
			t.Errorf("a second job does not say that it runs without the workspace:\n%s", log)
		}
		must.OK(t, lock.Close())
	})

	t.Run("killed agent", func(t *testing.T) {
		k.t = t
		d := k.queue("main", mark("survived")+wait)
		dir := k.begun(d)
		must.OK(t, agent.Process.Stop(syscall.SIGKILL, harness.Patience))
		must.OK(t, w.RestartAgent(t.Context()))
		harness.Write(t, filepath.Join(dir, "go"), nil, 0o600)
		k.finish(d, "succeeded")
		if log := k.run("main", look, "succeeded"); !sees(log, "survived") {
			t.Errorf("the job that survived its agent kept nothing:\n%s", log)
		}
	})

	t.Run("killed runner", func(t *testing.T) {
		k.t = t
		d := k.queue("main", mark("killed")+wait)
		dir := k.begun(d)
		list := must.Get(k.docker.ContainerList(t.Context(), client.ContainerListOptions{
			Filters: client.Filters{}.Add("volume", filepath.Base(filepath.Dir(dir))),
		}))(t)
		for _, c := range list.Items {
			must.Get(k.docker.ContainerKill(t.Context(), c.ID, client.ContainerKillOptions{Signal: "SIGKILL"}))(t)
		}
		k.finish(d, "failed")
		if log := k.run("main", look+mark("after"), "succeeded"); sees(log, "killed") || sees(log, "own") {
			t.Errorf("a killed job left its workspace to the next one:\n%s", log)
		}
		if log := k.run("main", look, "succeeded"); !sees(log, "after") {
			t.Errorf("the workspace did not recover:\n%s", log)
		}
	})
	t.Run("killed engine", func(t *testing.T) {
		k.t = t
		d := k.queue("main", mark("engine")+wait)
		dir := k.begun(d)
		must.OK(t, engine.Kill())
		// An engine that finds a live container first stops it.
		must.OK(t, engine.Restart(t.Context()))
		harness.Write(t, filepath.Join(dir, "go"), nil, 0o600)
		d = k.stack.Wait(t.Context(), t, d, 5*time.Minute, "succeeded", "failed")
		log := k.run("main", look, "succeeded")
		if kept := d.Status == "succeeded"; sees(log, "engine") != kept || sees(log, "after") != kept {
			t.Errorf("after a job that %s when its engine was killed, the next one finds:\n%s", d.Status, log)
		}
	})
	k.t = t
	k.noSecrets(t)
}

// noSecrets searches all workspaces for the secrets of the stack.
func (k *keeper) noSecrets(t *testing.T) {
	t.Helper()
	files := 0
	for _, dir := range k.volumes() {
		must.OK(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			if info, err := entry.Info(); err != nil || info.Size() > 1<<30 {
				return err // a sparse file
			}
			files++
			text, err := os.ReadFile(path)
			if bytes.Contains(text, []byte(plantedSecret)) {
				t.Errorf("%s contains a secret", path)
			}
			return err
		}))
	}
	if files == 0 {
		t.Error("no files found")
	}
}
