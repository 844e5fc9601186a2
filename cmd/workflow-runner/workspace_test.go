package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// killers are the texts of stand-ins for git and pulumi that kill the runner at a stage of the job.
var killers = map[string]struct{ git, pulumi string }{
	// The runner is the parent of the process that started git.
	"fetch":     {git: `case "$1" in fetch) kill -9 $(cut -d' ' -f4 /proc/$PPID/stat);; esac`},
	"checkout":  {git: `case "$1" in checkout) kill -9 $(cut -d' ' -f4 /proc/$PPID/stat);; esac`},
	"install":   {pulumi: `case "$1" in install) echo partial > node_modules/pkg; kill -9 $PPID;; esac`},
	"update":    {pulumi: `case "$1" in up) kill -9 $PPID;; esac`},
	"restoring": {git: `case "$1" in ls-files) grep -q job-dir /proc/$PPID/cmdline || kill -9 $(cut -d' ' -f4 /proc/$PPID/stat);; esac`},
	// After the job, the runner itself starts git.
	"tidying": {git: `case "$1" in ls-files) if grep -q job-dir /proc/$PPID/cmdline; then kill -9 $PPID; sleep 1; fi;; esac`},
}

// workspaceJob returns the command of a job that uses a workspace. bin has stand-ins for its programs.
func workspaceJob(t *testing.T, repo *lab.Repo, bin, ws string) *exec.Cmd {
	t.Helper()
	api := fakes.NewServer(t)
	job := api.Add()
	d := &workflow.Deployment{
		ID: "d", Organization: "o", Project: "p", Stack: "s", Operation: workflow.OperationUpdate, BackendURL: api.URL,
		Source:    &workflow.Source{Git: &workflow.GitSource{RepoURL: repo.URL, Branch: "main"}},
		Workspace: &workflow.Workspace{Scope: strings.Repeat("0f", 32), Key: "key"},
	}
	input := must.Get(json.Marshal(protocol.Launch{
		ServiceURL: api.URL, JobID: job.ID, JobToken: job.Token, Epoch: 1, EchoLog: true,
		Definition: &workflow.JobDefinition{Image: &workflow.Image{}, Env: map[string]string{}, Deployment: d, Steps: []workflow.Step{
			{Name: "Setup"},
			{Name: "Get source", Run: workflow.RunSourceGit},
			{Name: "Dependencies", Run: workflow.RunDependencies},
			{Name: "Update", Run: workflow.RunPulumi + " update"},
		}},
	}))(t)
	cmd := command(t, "run", "--job-dir", filepath.Join(t.TempDir(), "job"))
	cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"), "WORKFLOW_RUNNER_WORKSPACE="+ws, "HOME="+t.TempDir(),
		"GOCACHE=", "npm_config_cache=") // of the test's own environment
	cmd.Stdin = bytes.NewReader(input)
	return cmd
}

// workspaceRepo returns a program with a lock file.
func workspaceRepo(t *testing.T) *lab.Repo {
	t.Helper()
	server := must.Get(lab.StartGitServer(t.Context(), t.TempDir(), lab.GitOptions{}))(t)
	t.Cleanup(func() { _ = server.Close() })
	repo, _, err := server.NewRepo(t.Context(), "program", map[string]string{
		"Pulumi.yaml": "name: shop\nruntime: nodejs\n", "package.json": "{}", "package-lock.json": "{}", "file": "one\n",
	})
	must.OK(t, err)
	return repo
}

// TestConcurrentRunners runs jobs of one scope at the same time. One of them has the workspace, and the others run
// without it. None finds a file of another.
func TestConcurrentRunners(t *testing.T) {
	const jobs = 3
	repo, bin, ws := workspaceRepo(t), t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"node": "echo v22.0.0",
		// Each job writes, waits until all have written, and reads.
		"pulumi": fmt.Sprintf(`case "$1" in
install) mkdir -p node_modules;;
up)
	places="${GOCACHE:-.} ${npm_config_cache:-.} node_modules ."
	for dir in $places; do mkdir -p "$dir"; echo $$ > "$dir/owner"; done
	touch %[1]s/at-$$
	while [ "$(ls %[1]s | grep -c at-)" -lt %[2]d ]; do sleep 0.02; done
	for dir in $places; do [ "$(cat "$dir/owner")" = $$ ] || echo MIXED; done
	cat file;;
esac`, bin, jobs),
	} {
		must.OK(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700))
	}
	outputs := make([]string, jobs)
	var all sync.WaitGroup
	for i := range jobs {
		job := workspaceJob(t, repo, bin, ws)
		all.Go(func() {
			out, err := job.CombinedOutput()
			if outputs[i] = string(out); err != nil {
				t.Errorf("%v:\n%s", err, out)
			}
		})
	}
	all.Wait()
	without := 0
	for _, out := range outputs {
		if strings.Contains(out, "MIXED") || !strings.Contains(out, "one\n") {
			t.Errorf("a job finds files of another one:\n%s", out)
		}
		if strings.Contains(out, "not used: another job of this stack is using it") {
			without++
		}
	}
	if without != jobs-1 {
		t.Errorf("%d of %d jobs ran without the workspace:\n%s", without, jobs, strings.Join(outputs, "\n"))
	}
	if out, err := workspaceJob(t, repo, bin, ws).CombinedOutput(); err != nil || !strings.Contains(string(out), "Workspace: kept checkout") {
		t.Errorf("the next job: %v\n%s", err, out)
	}
}

// TestKilledRunner kills the runner at each stage of a job that uses a workspace. The next job does everything
// anew, and the one after it uses the workspace.
func TestKilledRunner(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("the stand-ins find the runner in /proc")
	}
	realGit := must.Get(exec.LookPath("git"))(t)
	repo := workspaceRepo(t)
	for stage, killer := range killers {
		t.Run(stage, func(t *testing.T) {
			bin, ws := t.TempDir(), t.TempDir()
			install := func(name, text string) {
				t.Helper()
				must.OK(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700))
			}
			install("kill-git", killer.git)
			install("git", `[ ! -f `+bin+`/armed ] || . `+bin+"/kill-git\n"+`exec `+realGit+` "$@"`)
			install("pulumi", `case "$1" in install) mkdir -p node_modules; echo "INSTALLS";; up) cat file; ls node_modules;; esac
[ -f `+bin+`/armed ] && { `+killer.pulumi+"\n:; }\nexit 0")
			install("node", "echo v22.0.0")
			run := func(kill bool) string {
				t.Helper()
				armed := filepath.Join(bin, "armed")
				must.OK(t, os.RemoveAll(armed))
				if kill {
					must.OK(t, os.WriteFile(armed, nil, 0o600))
				}
				out, err := workspaceJob(t, repo, bin, ws).CombinedOutput()
				if killed := err != nil && strings.Contains(err.Error(), "killed"); killed != kill {
					t.Fatalf("the runner ended with %v:\n%s", err, out)
				}
				return string(out)
			}
			run(false)
			if out := run(false); !strings.Contains(out, "kept checkout (fetched 0 B), dependencies") || strings.Contains(out, "INSTALLS") {
				t.Fatalf("the second job does not use the workspace:\n%s", out)
			}
			if stage == "install" { // the lock file is unchanged, so only a new workspace installs
				must.OK(t, os.RemoveAll(filepath.Join(ws, "state.json")))
			}
			run(true)
			out := run(false)
			if !strings.Contains(out, "did not end in order") || !strings.Contains(out, "INSTALLS") || !strings.Contains(out, "one\n") || strings.Contains(out, "pkg") {
				t.Errorf("the job after the killed one:\n%s", out)
			}
			if out := run(false); !strings.Contains(out, "kept checkout (fetched 0 B), dependencies") {
				t.Errorf("the workspace does not recover:\n%s", out)
			}
		})
	}
}
