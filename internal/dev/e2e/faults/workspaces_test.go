package faults

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// keeper is a stack whose jobs keep a workspace. Each job runs step.sh of its commit.
type keeper struct {
	t     *testing.T
	stack *harness.Stack
	repo  *lab.Repo
	agent *lab.Agent
	state string // the agent's state directory
	// outside is a directory of the host in which jobs record what they did. Nothing else touches it.
	outside string
	hold    harness.Hold
	used    map[string]bool // paths of the stack's workspaces
}

const plantedSecret = "planted-9f1c2b7d"

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	ctx := t.Context()
	w := harness.StartSite(t, "")
	k := &keeper{t: t, outside: t.TempDir()}
	k.hold = harness.Hold{Dir: k.outside, At: k.outside}
	bin := t.TempDir()
	harness.Write(t, filepath.Join(bin, "git"), []byte(k.hold.Git(must.Get(exec.LookPath("git"))(t))), 0o755)
	stub := stubPulumi(t, "[ ! -e "+k.real()+" ] || exec "+filepath.Join(w.Tools.Dir, "pulumi")+` "$@"`)
	path := "PATH=" + strings.Join([]string{bin, stub, os.Getenv("PATH")}, string(os.PathListSeparator))
	k.agent = must.Get(w.StartAgent(ctx, "process", map[string]string{"max_concurrent_jobs": "2"}, path))(t)
	k.state = filepath.Join(w.Last.Dir, "state")
	k.repo = w.Repo(ctx, t)
	k.stack, k.used = k.newStack(w, "dev"), map[string]bool{}
	return k
}

// real is a file; only while it exists, jobs run pulumi instead of a stub that costs no time.
func (k *keeper) real() string { return filepath.Join(k.outside, "real") }

// newStack returns a stack whose jobs keep a workspace.
func (k *keeper) newStack(w *harness.Site, name string) *harness.Stack {
	k.t.Helper()
	t, ctx := k.t, k.t.Context()
	stack := w.NewStack(ctx, t, "box", name, "", nil)
	variables := map[string]any{"PLANTED": map[string]string{"secret": plantedSecret}, "OUTSIDE": k.outside}
	for name, value := range w.JobEnv() {
		variables[name] = value
	}
	must.OK(t, w.Server.Call(ctx, http.MethodPut, stack.Path("settings"), map[string]any{
		"sourceContext": map[string]any{"git": map[string]any{
			"repoUrl": k.repo.URL, "branch": "refs/heads/main",
			"gitAuth": map[string]any{"basicAuth": map[string]any{"userName": "git", "password": map[string]string{"secret": plantedSecret}}},
		}},
		"operationContext": map[string]any{"environmentVariables": variables, "preRunCommands": []string{"sh ./step.sh"}},
		"cacheOptions":     map[string]any{"enable": true},
	}, nil))
	return stack
}

// queue commits script as step.sh to a branch and queues a deployment of that branch.
func (k *keeper) queue(branch, script string) harness.Deployment {
	k.t.Helper()
	ctx := k.t.Context()
	for dir := range k.used {
		must.OK(k.t, harness.Unlocked(ctx, dir))
	}
	must.Get(k.repo.Commit(ctx, branch, "Step", map[string]string{"step.sh": "echo \"WORKSPACE $(cd .. && pwd)\"\n" + script}))(k.t)
	request := map[string]any{"operation": "update", "inheritSettings": true}
	if branch != lab.MainBranch {
		request["sourceContext"] = map[string]any{"git": map[string]any{"branch": "refs/heads/" + branch}}
	}
	var d harness.Deployment
	must.OK(k.t, k.stack.W.Server.Call(ctx, http.MethodPost, strings.TrimSuffix(k.stack.Path(""), "/"), request, &d))
	return d
}

// run is queue, and waits for the end. It returns the deployment's log.
func (k *keeper) run(branch, script, status string) string {
	k.t.Helper()
	return k.finish(k.queue(branch, script), status)
}

func (k *keeper) finish(d harness.Deployment, status string) string {
	k.t.Helper()
	ctx := k.t.Context()
	d = k.stack.Finish(ctx, k.t, d)
	log := k.stack.Log(ctx, k.t, d)
	if _, dir, ran := strings.Cut(log, "WORKSPACE "); ran {
		dir, _, _ = strings.Cut(dir, "\n")
		k.used[dir] = true
	}
	if d.Status != status {
		k.t.Fatalf("deployment %d %s (%s %s), not %s:\n%s", d.Version, d.Status, d.Reason, d.Message, status, log)
	}
	return log
}

// runner returns the runner of which a process is a descendant. The agent is the runner's parent.
func (k *keeper) runner(pid string) int {
	k.t.Helper()
	for {
		_, stat, _ := strings.Cut(string(harness.Read(k.t, "/proc/"+pid+"/stat")), ") ")
		fields := strings.Fields(stat)
		if len(fields) < 2 || fields[1] == "1" {
			k.t.Fatalf("process %s is not a descendant of the agent", pid)
		}
		if fields[1] == strconv.Itoa(k.agent.Process.Pid()) {
			return must.Get(strconv.Atoi(pid))(k.t)
		}
		pid = fields[1]
	}
}

// mark leaves files in every place of a workspace that a job can find, below a name.
func mark(name string) string {
	return fmt.Sprintf(`set -u
mkdir -p node_modules
for dir in . .git .git/hooks node_modules .. "${GOMODCACHE:-.}" "${GOCACHE:-.}" "${npm_config_cache:-.}" "${PIP_CACHE_DIR:-.}" "$HOME"; do
	mkdir -p "$dir" && echo x > "$dir/mark-%s"
done
`, name)
}

// look prints SEES and the name of each mark that a job finds.
const look = `for dir in . "${GOMODCACHE:-.}" "${GOCACHE:-.}" "${npm_config_cache:-.}" "${PIP_CACHE_DIR:-.}" "$HOME" ..; do
	find "$dir" -maxdepth 4 -name 'mark-*' 2>/dev/null | sed 's/^/SEES /'
done
echo LOOKED
`

// sees returns whether a job that ran [look] has found a mark.
func sees(log, name string) bool { return strings.Contains(log, "/mark-"+name+"\n") }

// TestFaultWorkspaces has the jobs of one stack attack the workspace of later jobs. The jobs of the stack's own
// branch find what earlier ones have kept, and nothing else.
func TestFaultWorkspaces(t *testing.T) {
	k := newKeeper(t)
	checkCancelled := k.cancel()

	harness.Write(t, k.real(), nil, 0o600)
	k.run("main", mark("own"), "succeeded")
	log := k.run("main", look, "succeeded")
	must.OK(t, os.Remove(k.real()))
	if !sees(log, "own") {
		t.Errorf("the second job of the own branch finds nothing:\n%s", log)
	}
	if strings.Contains(log, "SEES ./mark-own") {
		t.Errorf("an untracked file stayed in the checkout:\n%s", log)
	}

	t.Run("another branch", func(t *testing.T) {
		k.t = t
		if log := k.run("feature", look+mark("feature"), "succeeded"); sees(log, "own") {
			t.Errorf("the job of another branch sees the workspace of the own branch:\n%s", log)
		}
		if log := k.run("main", look, "succeeded"); sees(log, "feature") || !sees(log, "own") {
			t.Errorf("the job of the own branch does not find only its own workspace:\n%s", log)
		}
	})

	t.Run("git runs nothing", func(t *testing.T) {
		k.t = t
		record := `#!/bin/sh\n[ ! -e ` + k.outside + `/armed ] || echo ran >> ` + k.outside + `/hook\n`
		k.run("main", `printf '`+record+`' > evil.sh && chmod +x evil.sh && cp evil.sh ../evil.sh
dir=$(git rev-parse --absolute-git-dir)
mkdir -p "$dir/hooks" "$dir/info"
for hook in post-checkout post-merge reference-transaction pre-auto-gc post-index-change; do cp evil.sh "$dir/hooks/$hook"; done
echo '* filter=evil' > "$dir/info/attributes"
git config core.fsmonitor "$PWD/../evil.sh"
git config core.hooksPath "$PWD/.."
git config core.sshCommand "$PWD/../evil.sh"
git config credential.helper "$PWD/../evil.sh"
git config filter.evil.smudge "$PWD/../evil.sh"
git config filter.evil.clean "$PWD/../evil.sh"
git config core.pager "$PWD/../evil.sh"
git config include.path "$PWD/../evil.conf"
git config url.http://127.0.0.1:1/.insteadOf http://
git config --global core.fsmonitor "$PWD/../evil.sh" || true
`, "succeeded")
		harness.Write(t, filepath.Join(k.outside, "armed"), nil, 0o600) // pulumi runs git in the same job, too
		k.run("main", look, "succeeded")
		if text, err := os.ReadFile(filepath.Join(k.outside, "hook")); err == nil {
			t.Errorf("git ran a program that an earlier job left: %s", text)
		}
	})

	t.Run("failed job", func(t *testing.T) {
		k.t = t
		k.run("main", mark("failed")+"exit 7\n", "failed")
		if log := k.run("main", look, "succeeded"); sees(log, "failed") {
			t.Errorf("a failed job left its workspace to the next one:\n%s", log)
		}
	})

	for _, stage := range harness.WorkspaceStages {
		for _, victim := range []string{"agent", "runner"} {
			t.Run(stage.Name+", killed "+victim, func(t *testing.T) {
				k.t = t
				k.killed(stage, victim)
			})
		}
	}

	t.Run("links and special files", func(t *testing.T) {
		k.t = t
		canary := filepath.Join(k.outside, "canary")
		must.OK(t, os.Mkdir(canary, 0o755))
		harness.Write(t, filepath.Join(canary, "node_modules"), []byte("x"), 0o644)
		k.run("main", `ws=$(cd .. && pwd)
rm -rf node_modules && ln -s "$OUTSIDE/canary" node_modules
ln -s "$OUTSIDE/canary" venv && ln -s / .venv
mkfifo fifo .git/fifo "$ws/fifo" || true
ln "$OUTSIDE/canary/node_modules" hard || true
truncate -s 1T sparse && mkdir closed && touch closed/x && chmod 0 closed
rm -f "$ws/state.json" && ln -s "$OUTSIDE/canary/node_modules" "$ws/state.json" || true
[ -d "$ws/caches" ] && rm -rf "$ws/caches" && ln -s "$OUTSIDE/canary" "$ws/caches" || true
`, "succeeded")
		k.run("main", mark("after"), "succeeded")
		if log := k.run("main", look, "succeeded"); !sees(log, "after") {
			t.Errorf("the workspace did not recover:\n%s", log)
		}
		entries := must.Get(os.ReadDir(canary))(t)
		if len(entries) != 1 || string(harness.Read(t, filepath.Join(canary, "node_modules"))) != "x" {
			t.Errorf("a job changed %v outside of its workspace", entries)
		}
	})

	t.Run("damaged workspaces", func(t *testing.T) {
		k.t = t
		damage := map[string]func(dir string) error{
			"state is truncated": func(dir string) error { return os.Truncate(filepath.Join(dir, "state.json"), 5) },
			"objects are gone": func(dir string) error {
				return eachObject(dir, os.Remove)
			},
			"objects are truncated": func(dir string) error {
				return eachObject(dir, func(path string) error {
					return os.WriteFile(path, []byte("garbage"), 0o600)
				})
			},
			"the workspace is a link": func(dir string) error {
				moved := filepath.Join(k.outside, "moved-"+filepath.Base(dir))
				return errors.Join(os.Rename(dir, moved), os.Symlink(moved, dir))
			},
			"the workspace is a file": func(dir string) error {
				return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600))
			},
		}
		for name, do := range damage {
			t.Run(name, func(t *testing.T) {
				k.t = t
				k.run("main", look, "succeeded")
				damaged := 0
				for dir := range k.used {
					must.OK(t, harness.Unlocked(t.Context(), dir))
					if _, err := os.Stat(filepath.Join(dir, "state.json")); err == nil {
						must.OK(t, do(dir))
						defer os.RemoveAll(dir) // as the agent does in the course of time
						damaged++
					}
				}
				if damaged == 0 {
					t.Fatal("no workspace is whole")
				}
				log := k.run("main", look, "succeeded")
				if strings.Contains(log, "kept checkout (") || strings.HasPrefix(name, "the workspace is") != strings.Contains(log, "Running without a workspace: ") {
					t.Errorf("the next job finds:\n%s", log)
				}
			})
		}
	})

	k.t = t
	checkCancelled()
	k.noSecrets(t)
}

// cancel cancels a job of another stack with the same repository. Because the job hears of that only at its next
// heartbeat, the returned function checks what it has left.
func (k *keeper) cancel() (check func()) {
	k.t.Helper()
	ctx, other := k.t.Context(), *k
	other.stack, other.used = k.newStack(k.stack.W, "other"), map[string]bool{}
	other.run("main", mark("before"), "succeeded")
	d := other.queue("main", look+mark("cancelled")+"echo x > $OUTSIDE/begun; exec sleep 300\n")
	must.OK(k.t, harness.Until(ctx, func() (bool, error) {
		_, err := os.Stat(filepath.Join(k.outside, "begun"))
		return err == nil, nil
	}))
	must.OK(k.t, k.stack.W.Server.Call(ctx, http.MethodPost, other.stack.Path(d.ID+"/cancel"), nil, nil))
	return func() {
		other.t = k.t
		other.stack.Wait(ctx, k.t, d, patience, "failed", "skipped")
		log := other.run("main", look, "succeeded")
		if sees(log, "cancelled") || sees(log, "before") || !strings.Contains(log, "did not end in order") {
			k.t.Errorf("the job after a cancelled one finds:\n%s", log)
		}
		if sees(log, "own") || sees(log, "after") {
			k.t.Errorf("a job finds what those of another stack left:\n%s", log)
		}
	}
}

// killed kills the agent or the runner at a stage of a job. The next job uses what the job has kept, or starts afresh.
func (k *keeper) killed(stage harness.WorkspaceStage, victim string) {
	k.t.Helper()
	ctx := k.t.Context()
	for dir := range k.used {
		must.OK(k.t, harness.Unlocked(ctx, dir)) // an earlier job must not be held
	}
	must.OK(k.t, k.hold.Release())
	if !stage.Late {
		must.OK(k.t, k.hold.Set(stage.Held))
	}
	d := k.queue("main", mark(victim)+stage.Script(k.hold))
	pid, err := k.hold.Reached(ctx)
	if err != nil {
		k.t.Fatalf("the job was not held: %v\n%s", err, k.stack.Log(ctx, k.t, d))
	}
	status := "succeeded"
	if victim == "agent" {
		must.OK(k.t, k.agent.Process.Stop(syscall.SIGKILL, patience))
		must.OK(k.t, k.stack.W.RestartAgent(ctx))
		k.agent = k.stack.W.Agents[0]
	} else {
		must.OK(k.t, syscall.Kill(k.runner(pid), syscall.SIGKILL))
		if !stage.Late { // else the result is already recorded
			status = "failed"
		}
	}
	must.OK(k.t, k.hold.Release())
	k.finish(d, status)
	log := k.run("main", look+mark("after"), "succeeded")
	orderly := victim == "agent"
	older := sees(log, "own") || sees(log, "after")
	if sees(log, victim) != orderly || strings.Contains(log, "Workspace: kept checkout") != orderly ||
		strings.Contains(log, "did not end in order") == orderly || older && !orderly {
		k.t.Errorf("the next job finds:\n%s", log)
	}
}

// eachObject calls do for each file with objects of git in a workspace that no job uses.
func eachObject(dir string, do func(path string) error) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || !strings.Contains(path, "/git/pack/") {
			return err
		}
		if err := os.Chmod(path, 0o600); err != nil {
			return err
		}
		return do(path)
	})
}

// noSecrets searches all workspaces for the secrets of the stack.
func (k *keeper) noSecrets(t *testing.T) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(filepath.Join(k.state, "workspaces"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(plantedSecret)) {
			t.Errorf("%s contains a secret", path)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files found: %v", files, err)
	}
}
