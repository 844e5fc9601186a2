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
	engine *lab.Engine
	hold   harness.Hold
}

func (k *keeper) queue(branch, script string) harness.Deployment {
	k.t.Helper()
	k.commit(branch, script)
	request := map[string]any{"operation": "preview", "inheritSettings": true}
	if branch != lab.MainBranch {
		request["sourceContext"] = map[string]any{"git": map[string]any{"branch": "refs/heads/" + branch}}
	}
	return k.request(request)
}

func (k *keeper) commit(branch, script string) (hash string) {
	k.t.Helper()
	return must.Get(k.repo.Commit(k.t.Context(), branch, "Step", map[string]string{"step.sh": script}))(k.t)
}

func (k *keeper) request(request map[string]any) (d harness.Deployment) {
	k.t.Helper()
	must.OK(k.t, k.stack.W.Server.Call(k.t.Context(), http.MethodPost, strings.TrimSuffix(k.stack.Path(""), "/"), request, &d))
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

// look prints the marks that a job finds in its workspace.
const look = "for mark in /mnt/pulumi/workspace/caches/*/mark-*; do echo \"SEES $mark\"; done\n"

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
	hold, wrapper := harness.Hold{Dir: "/mnt/pulumi/workspace"}, filepath.Join(t.TempDir(), "git")
	harness.Write(t, wrapper, []byte(hold.Git("/usr/bin/git")), 0o755)
	stub := must.Get(lab.NewStubImage(ctx, harness.StubVersion))(t).With(map[string]string{"/pulumi/bin/git": wrapper})
	w, engine, image := harness.StartEngineSiteWith(t, stub, harness.OnLoopback)
	must.Get(w.StartAgent(ctx, "docker", map[string]string{"pull_image": "false"}, "DOCKER_HOST="+engine.Host))(t)
	k := &keeper{t: t, engine: engine, hold: hold, docker: must.Get(engine.Client())(t), repo: w.Repo(ctx, t), stack: w.NewStack(ctx, t, "box", "dev", image, nil)}
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
# Tools search for these in the directories above the program.
mkdir node_modules .git; for dir in . source caches; do
	for file in package.json .npmrc .yarnrc.yml pnpm-workspace.yaml go.work uv.toml .git/config; do
		mkdir -p $dir/.git; echo x > $dir/$file
	done
done
`, "succeeded")
	if !sees(log, "own") || sees(log, "feature") {
		t.Errorf("the job of the own branch does not find only its own workspace:\n%s", log)
	}
	log = k.run("main", look+`echo "ENTRIES $(ls -A /mnt/pulumi/workspace | tr '\n' ' ')"
echo "CHECKOUT $(ls -A | tr '\n' ' ')"
echo "CACHES $(find /mnt/pulumi/workspace/caches -mindepth 1 -maxdepth 1 ! -type d)"
git status --porcelain --ignored
`, "succeeded")
	for _, want := range []string{"ENTRIES caches git lock plugins source \n", "CHECKOUT .git Pulumi.yaml step.sh \n", "CACHES \n"} {
		if !sees(log, "own") || !strings.Contains(log, want) || strings.Contains(log, "?? ") || strings.Contains(log, "!! ") {
			t.Errorf("after hostile leftovers, the job finds not only %q:\n%s", want, log)
		}
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

	t.Run("unproven commit", func(t *testing.T) { // as in a fork
		k.t = t
		before := len(k.volumes())
		commit := k.commit("feature", look+"ls -d /mnt/pulumi/workspace || true\n")
		git := map[string]any{"git": map[string]any{"commit": commit}}
		log := k.finish(k.request(map[string]any{"operation": "preview", "inheritSettings": true, "sourceContext": git}), "succeeded")
		if sees(log, "own") || sees(log, "feature") || !strings.Contains(log, "/mnt/pulumi/workspace: No such file") || len(k.volumes()) != before {
			t.Errorf("a job whose code has no proven origin has a workspace:\n%s", log)
		}
	})

	k.hold.At = own[0]
	for _, stage := range harness.WorkspaceStages {
		if stage.Held == harness.HeldStep {
			continue // TestFaultWorkspaces and TestEngineFault do that
		}
		for _, victim := range []string{"agent", "runner", "engine"} {
			t.Run(stage.Name+", killed "+victim, func(t *testing.T) {
				k.t = t
				k.killed(stage, victim)
			})
		}
	}
	k.t = t
	k.noSecrets(t)
}

// killed kills the agent, the container or the engine at a stage of a job. The next job uses what the job has kept,
// or starts afresh.
func (k *keeper) killed(stage harness.WorkspaceStage, victim string) {
	k.t.Helper()
	ctx := k.t.Context()
	must.OK(k.t, harness.Unlocked(ctx, k.hold.At)) // an earlier job must not be held
	must.OK(k.t, k.hold.Release())
	if !stage.Late {
		must.OK(k.t, k.hold.Set(stage.Held))
	}
	d := k.queue("main", mark(victim)+stage.Script(k.hold))
	if _, err := k.hold.Reached(ctx); err != nil {
		k.t.Fatalf("the job was not held: %v\n%s", err, k.stack.Log(ctx, k.t, d))
	}
	switch victim {
	case "agent":
		site := k.stack.W
		must.OK(k.t, site.Agents[0].Process.Stop(syscall.SIGKILL, harness.Patience))
		must.OK(k.t, site.RestartAgent(ctx))
	case "runner":
		list := must.Get(k.docker.ContainerList(ctx, client.ContainerListOptions{
			Filters: client.Filters{}.Add("volume", filepath.Base(filepath.Dir(k.hold.At))),
		}))(k.t)
		for _, c := range list.Items {
			must.Get(k.docker.ContainerKill(ctx, c.ID, client.ContainerKillOptions{Signal: "SIGKILL"}))(k.t)
		}
	case "engine":
		must.OK(k.t, k.engine.Kill())
		if stage.Late {
			must.OK(k.t, k.hold.Release())
		}
		must.OK(k.t, k.engine.Restart(ctx)) // it first stops a container that it finds
	}
	must.OK(k.t, k.hold.Release())
	d = k.stack.Finish(ctx, k.t, d)
	// A job that gives its workspace back has recorded its result.
	if want := victim == "agent" || stage.Late; (d.Status == "succeeded") != want {
		k.t.Errorf("the job %s (%s %s)\n%s", d.Status, d.Reason, d.Message, k.stack.Log(ctx, k.t, d))
	}
	log := k.run("main", look+mark("after"), "succeeded")
	orderly := strings.Contains(log, "Workspace: kept checkout")
	older := sees(log, "own") || sees(log, "after")
	if orderly != (victim == "agent") && (victim != "engine" || !stage.Late) || sees(log, victim) != orderly ||
		strings.Contains(log, "did not end in order") == orderly || older && !orderly {
		k.t.Errorf("the next job finds:\n%s", log)
	}
}

// noSecrets searches all workspaces for the secrets of the stack.
func (k *keeper) noSecrets(t *testing.T) {
	t.Helper()
	files := 0
	for _, dir := range k.volumes() {
		must.OK(t, harness.Unlocked(t.Context(), dir)) // the last job can still restore its checkout
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
