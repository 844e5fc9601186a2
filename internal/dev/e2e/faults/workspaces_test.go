package faults

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

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

	t.Run("process that outlives the job", func(t *testing.T) {
		k.t = t
		k.run("main", `cat > ../../late-$$ <<'END'
cd "$1"
touch "$OUTSIDE/late-begun"
while [ ! -e state.json ]; do sleep 0.01; done
mkdir -p source/.git/hooks node_modules
for dir in . source source/.git git git/pack node_modules; do echo x > $dir/mark-late; done
printf '[core]\n\tfsmonitor = touch %s/ran-late\n' "$OUTSIDE" > source/.git/config
touch "$OUTSIDE/late-ended"
END
setsid sh ../../late-$$ "$(cd .. && pwd)" > /dev/null 2>&1 < /dev/null &
while [ ! -e "$OUTSIDE/late-begun" ]; do sleep 0.01; done
`, "succeeded")
		log := k.run("main", look+"git status\nls -A ..\n", "succeeded")
		for _, name := range []string{"ran-late", "late-ended"} {
			if _, err := os.Stat(filepath.Join(k.outside, name)); err == nil || sees(log, "late") {
				t.Errorf("%s: a process survived its job, and the next job finds:\n%s", name, log)
			}
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
	k.fill()
}

// fill has a job fill its workspace. The agent removes it and no other.
func (k *keeper) fill() {
	k.t.Helper()
	ctx := k.t.Context()
	k.run("main", `mkdir -p "$GOCACHE" && dd if=/dev/zero of="$GOCACHE/big" bs=1048576 count=8`+"\n", "succeeded")
	before := k.settled()
	must.OK(k.t, k.agent.Process.Stop(syscall.SIGTERM, patience))
	k.stack.W.Last.Settings["workspace_max_size"] = "4m"
	must.OK(k.t, k.stack.W.RestartAgent(ctx))
	var after []string
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := harness.Until(limited, func() (done bool, err error) {
		after, err = filepath.Glob(filepath.Join(k.state, "workspaces", "*", "state.json"))
		return len(after) < len(before), err
	})
	if err != nil || len(before) < 2 || len(after) != len(before)-1 {
		k.t.Errorf("of the workspaces %q remain %q, %v", before, after, err)
	}
	if log := k.run("main", look, "succeeded"); !strings.Contains(log, "nothing kept by an earlier job") || strings.Contains(log, "starting afresh") {
		k.t.Errorf("the job after one that filled its workspace finds:\n%s", log)
	}
}

// cancel cancels a job of another stack with the same repository. Because the job hears of that only at its next
// heartbeat, the returned function checks what it has left.
func (k *keeper) cancel() (check func()) {
	k.t.Helper()
	ctx, other := k.t.Context(), *k
	other.stack, other.used = k.newStack(k.stack.W, "other"), map[string]bool{}
	other.run("main", mark("before"), "succeeded")
	d := other.queue("main", look+mark("cancelled")+"echo x > $OUTSIDE/begun; exec sleep 300\n")
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	must.OK(k.t, harness.Until(limited, func() (bool, error) {
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
