package runner_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// stack is a program whose jobs share a workspace.
type stack struct {
	*program
	ws, bin string
}

var nodeProgram = map[string]string{
	"infra/Pulumi.yaml":       "name: shop\nruntime: nodejs\n",
	"infra/package.json":      `{"name":"shop"}`,
	"infra/package-lock.json": `{"lockfileVersion":3}`,
	"infra/script":            installScript,
	"infra/source":            "one\n",
}

// installScript installs a package if the stand-in is called for that.
const installScript = `case "$1" in install) mkdir -p node_modules/pkg; echo installed >> node_modules/pkg/index.js;; esac
[ -f "$HOOK" ] && . "$HOOK"
`

// fakeNode is a stand-in for node, so that the tests need none.
const fakeNode = "#!/bin/sh\necho v22.0.0\n"

func newStack(t *testing.T, files map[string]string) *stack {
	t.Helper()
	op := workflow.OperationUpdate
	p := newProgramOn(t, lab.GitOptions{}, op, files, workflow.Step{Name: "Download dependencies", Run: workflow.RunDependencies}, pulumiStep(op))
	s := &stack{p, t.TempDir(), t.TempDir()}
	d := p.launch.Definition.Deployment
	d.Workspace = &workflow.Workspace{Scope: strings.Repeat("a1", 32), Key: "key"}
	for name, text := range map[string]string{"node": fakeNode, "pulumi": fakePulumi} {
		if err := os.WriteFile(filepath.Join(s.bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.environ = append(s.environ, protocol.EnvWorkspace+"="+s.ws, "HOOK="+s.hookFile(), "PATH="+s.bin+":"+os.Getenv("PATH"))
	return s
}

// hook sets the shell text that the stand-in for pulumi runs in the program's directory.
func (s *stack) hook(text string) {
	s.t.Helper()
	if err := os.WriteFile(s.hookFile(), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stack) hookFile() string { return filepath.Join(s.bin, "hook") }

// next runs a job of the stack and returns its log.
func (s *stack) next() (code int, log string) {
	s.t.Helper()
	s.renew()
	if err := os.Remove(s.calls); err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	code, _ = s.run()
	return code, s.text(1) + s.text(2) + s.text(3)
}

func (s *stack) installs() int { return strings.Count(s.read(""), "pulumi install") }

func TestWorkspaceReuse(t *testing.T) {
	s := newStack(t, nodeProgram)
	d := s.launch.Definition
	d.SecretEnv = append(d.SecretEnv, "NPM_PIN")
	d.Env["NPM_PIN"] = "1234" // too short to be masked
	code, log := s.next()
	if code != 0 || s.installs() != 1 || s.job.Use != protocol.WorkspaceFresh || !strings.Contains(log, "Cloning") || !strings.Contains(log, "nothing kept by an earlier job") {
		t.Fatalf("first job: exit code %d, %d installations:\n%s%s", code, s.installs(), log, s.log.String())
	}
	d.Env["NPM_PIN"] = "5678" // the record does not depend on secrets
	code, log = s.next()
	if code != 0 || s.installs() != 0 || s.job.Use != protocol.WorkspaceReused || !strings.Contains(log, "Updating the checkout of") ||
		!strings.Contains(log, "Workspace: kept checkout (fetched 0 B), dependencies (lock file unchanged)") {
		t.Errorf("second job: exit code %d, %d installations:\n%s%s", code, s.installs(), log, s.log.String())
	}
}

// TestWorkspaceHostile has a job change its checkout and git's files. Nothing of it has an effect in the next
// job, which still uses the workspace where it is proven, and no secret stays.
func TestWorkspaceHostile(t *testing.T) {
	const secret = "planted-secret-81c2"
	for name, text := range map[string]string{
		"configuration and hooks": `printf '#!/bin/sh\ntouch "$HOOK.ran"\n' > ../../evil; chmod +x ../../evil
mkdir -p ../.git/hooks ../.git/info
for hook in post-checkout reference-transaction post-index-change; do cp ../../evil ../.git/hooks/$hook; done
for name in core.fsmonitor core.sshCommand credential.helper filter.evil.smudge filter.evil.clean; do git config $name "$PWD/../../evil"; done
git config include.path "$PWD/../../evil.conf"; git config core.worktree /; git config url.http://127.0.0.1:1/.insteadOf http://
git config http.extraheader "Authorization: ` + secret + `"; git remote set-url origin http://` + secret + `@127.0.0.1:1/
echo '* filter=evil' > ../.git/info/attributes; echo /nowhere > ../.git/objects/info/alternates`,
		"changed files": `echo tampered > source; touch -r Pulumi.yaml source; git update-index --assume-unchanged source; git update-index --skip-worktree Pulumi.yaml
rm package-lock.json; git add -A; git -c user.name=a -c user.email=a@b commit -qm x`,
		"credentials":     `echo '` + secret + `' >> source; echo //registry/:_authToken=` + secret + ` | tee .npmrc ../.npmrc ../../.npmrc > $HOME/.npmrc; echo ` + secret + ` > ../.git/x`,
		"links":           `rm -rf source script; ln -s /etc/passwd source; ln -s / ../venv; mkdir ../.venv; mkfifo ../fifo; ln Pulumi.yaml hard; truncate -s 1T sparse; mkdir closed; chmod 0 closed`,
		"link for infra":  `mv ../infra ../../moved; ln -s ../../moved ../infra`,
		"no git":          `rm -rf ../.git`,
		"broken objects":  `chmod -R u+w ../.git/objects; for f in ../.git/objects/pack/*; do echo garbage > $f; done`,
		"moved workspace": `rm -rf ../../caches; ln -s / ../../caches`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newStack(t, nodeProgram)
			s.hook(`case "$1" in up) ` + text + "\n:;; esac\n")
			if code, log := s.next(); code != 0 {
				t.Fatalf("exit code %d:\n%s", code, log)
			}
			err := filepath.WalkDir(s.ws, func(path string, entry os.DirEntry, err error) error {
				if err != nil || !entry.Type().IsRegular() || entry.Name() == "sparse" {
					return nil //nolint:nilerr // directories without permissions
				}
				if _, whole := os.Stat(filepath.Join(s.ws, "state.json")); whole != nil {
					return nil //nolint:nilerr // the next job deletes everything first
				}
				data, err := os.ReadFile(path)
				if strings.Contains(string(data), secret) || strings.Contains(string(data), gitToken) {
					t.Errorf("%s has a secret", path)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
			if err := os.Remove(s.hookFile() + ".ran"); err != nil && !os.IsNotExist(err) { // git ran it in the first job
				t.Error(err)
			}
			s.hook(`case "$1" in up) cat source; git config --list; ls -a . .. ../.git ../.git/hooks 2>&1; git status --porcelain;; esac`)
			code, log := s.next()
			if code != 0 || !strings.Contains(log, "\none\n") {
				t.Errorf("exit code %d:\n%s\n%s", code, log, s.log.String())
			}
			for _, bad := range []string{"evil", "fsmonitor", "extraheader", secret, "post-checkout", "\n M ", "\n D ", "hard", "sparse", "tampered"} {
				if strings.Contains(log, bad) {
					t.Errorf("the next job sees %q:\n%s", bad, log)
				}
			}
			if _, err := os.Stat(s.hookFile() + ".ran"); err == nil {
				t.Error("git ran a program that a job left")
			}
		})
	}
}

// TestWorkspaceChanges checks what a job does when the program, its dependencies or its outcome change.
func TestWorkspaceChanges(t *testing.T) {
	s := newStack(t, nodeProgram)
	s.next()
	if _, err := s.repo.Commit(t.Context(), "main", "Change", map[string]string{"infra/source": "two\n"}); err != nil {
		t.Fatal(err)
	}
	s.hook(`case "$1" in up) cat source node_modules/pkg/index.js;; esac`)
	if _, log := s.next(); s.installs() != 0 || !strings.Contains(log, "two\ninstalled\n") || strings.Contains(log, "fetched 0 B") {
		t.Errorf("a new commit: %d installations:\n%s", s.installs(), log)
	}
	if _, err := s.repo.Commit(t.Context(), "main", "Lock", map[string]string{"infra/package-lock.json": "{}"}); err != nil {
		t.Fatal(err)
	}
	if _, log := s.next(); s.installs() != 1 || !strings.Contains(log, "installed\ninstalled\n") {
		t.Errorf("a new lock file: %d installations:\n%s", s.installs(), log)
	}
	s.hook(`case "$1" in up) exit 3;; esac`)
	if code, _ := s.next(); code == 0 || s.installs() != 0 {
		t.Errorf("exit code %d, %d installations", code, s.installs())
	}
	s.hook(``)
	if _, log := s.next(); s.installs() != 1 || !strings.Contains(log, "Updating the checkout") {
		t.Errorf("after a failure with kept dependencies: %d installations:\n%s", s.installs(), log)
	}
	s.hook(`case "$1" in install) exit 4;; esac`)
	s.launch.Definition.Deployment.Workspace.Key = "other"
	if code, log := s.next(); code == 0 || !strings.Contains(log, "starting afresh") {
		t.Errorf("another key: exit code %d:\n%s", code, log)
	}
	s.hook(``)
	if _, log := s.next(); s.installs() != 1 || !strings.Contains(log, "did not end in order") || !strings.Contains(log, "Cloning") {
		t.Errorf("after a failed installation: %d installations:\n%s", s.installs(), log)
	}
	s.launch.Definition.Deployment.Workspace = nil
	if _, log := s.next(); s.installs() != 1 || strings.Contains(log, "Workspace") {
		t.Errorf("without a workspace: %d installations:\n%s", s.installs(), log)
	}
}

// TestWorkspaceFull runs jobs whose workspace is on a full disk. They succeed without it.
func TestWorkspaceFull(t *testing.T) {
	files := maps.Clone(nodeProgram)
	for i := range 100 {
		files[fmt.Sprintf("files/%d", i)] = "x"
	}
	for options, want := range map[string]string{
		"size=8m":                  "Workspace: not used: its disk has only",
		"size=200m,nr_inodes=60":   "Workspace: not used, because its disk is full",
		"size=200m,nr_inodes=3":    "Workspace: not used: ",
		"size=200m,nr_inodes=1000": "Workspace: nothing kept by an earlier job",
	} {
		t.Run(options, func(t *testing.T) {
			s := newStack(t, files)
			if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", options, "tmpfs", s.ws).CombinedOutput(); err != nil {
				t.Skipf("this user cannot mount a small disk: %v: %s", err, out)
			}
			t.Cleanup(func() { _ = exec.CommandContext(context.WithoutCancel(t.Context()), "umount", "-l", s.ws).Run() })
			for range 2 {
				code, log := s.next()
				if code != 0 || s.installs() > 1 {
					t.Errorf("exit code %d:\n%s", code, log)
				}
				if !strings.Contains(log, want) {
					t.Errorf("the log lacks %q:\n%s", want, log)
				}
				if want == "Workspace: nothing kept by an earlier job" {
					break
				}
			}
		})
	}
}

// TestWorkspacePython checks that packages of an earlier lock file do not stay in a virtual environment.
func TestWorkspacePython(t *testing.T) {
	s := newStack(t, map[string]string{
		"infra/Pulumi.yaml":      "name: shop\nruntime: { name: python, options: { virtualenv: venv } }\n",
		"infra/requirements.txt": "a==1\n",
		"infra/script":           `case "$1" in install) mkdir -p venv; cp requirements.txt venv/$(cut -c1 requirements.txt);; up) ls venv;; esac`,
	})
	s.next()
	if _, log := s.next(); s.installs() != 0 || !strings.Contains(log, "\na\n") {
		t.Errorf("the same file: %d installations:\n%s", s.installs(), log)
	}
	if _, err := s.repo.Commit(t.Context(), "main", "Change", map[string]string{"infra/requirements.txt": "b==1\n"}); err != nil {
		t.Fatal(err)
	}
	if _, log := s.next(); s.installs() != 1 || !strings.Contains(log, "\nb\n") || strings.Contains(log, "\na\n") {
		t.Errorf("another file: %d installations:\n%s", s.installs(), log)
	}
}

// TestWorkspaceDoubt checks that an installation that cannot be skipped continues in the kept directory.
func TestWorkspaceDoubt(t *testing.T) {
	files := maps.Clone(nodeProgram)
	files["infra/package.json"] = `{"scripts":{"prepare":"make"}}`
	s := newStack(t, files)
	s.hook(`case "$1" in up) cat node_modules/pkg/index.js;; esac`)
	s.next()
	if _, log := s.next(); s.installs() != 1 || !strings.Contains(log, "installed\ninstalled\n") || !strings.Contains(log, "package.json has the script prepare") {
		t.Errorf("%d installations:\n%s", s.installs(), log)
	}
}

// TestWorkspaceYAML checks the log of a program without dependencies, with and without a pre-run command, which
// can fail.
func TestWorkspaceYAML(t *testing.T) {
	s := newStack(t, yamlProject)
	d := s.launch.Definition
	steps := d.Steps
	s.next()
	if _, log := s.next(); !strings.Contains(log, "Workspace: kept checkout (fetched 0 B), caches of tools") {
		t.Errorf("the log does not say what was kept:\n%s", log)
	}
	d.Steps = slices.Insert(slices.Clone(steps), 3, preRunStep())
	d.Deployment.PreRunCommands = []string{"exit 7"}
	if code, _ := s.next(); code != 7 {
		t.Errorf("exit code %d", code)
	}
	d.Steps = steps
	if _, log := s.next(); !strings.Contains(log, "did not end in order") || !strings.Contains(log, "Cloning") {
		t.Errorf("after a failed pre-run command:\n%s", log)
	}
}

// TestWorkspaceCompiled checks which jobs find what ts-node compiled in the one before.
func TestWorkspaceCompiled(t *testing.T) {
	s := newStack(t, nodeProgram)
	d := s.launch.Definition
	s.hook(`case "$1" in up) d=${TS_NODE_CACHE_DIRECTORY:-none}; echo "found: $(cat $d/compiled 2>&1)"; case $d in none) ;; *) mkdir -p $d; echo compiled > $d/compiled;; esac;; esac`)
	next := func(what string, found bool) {
		t.Helper()
		code, log := s.next()
		log += s.text(len(d.Steps) - 1)
		if code != 0 || !strings.Contains(log, "found: ") || strings.Contains(log, "found: compiled") != found {
			t.Errorf("%s: exit code %d:\n%s", what, code, log)
		}
	}
	commit := func(files map[string]string) {
		t.Helper()
		if _, err := s.repo.Commit(t.Context(), "main", "Change", files); err != nil {
			t.Fatal(err)
		}
	}
	next("the first job", false)
	next("an unchanged program", true)
	commit(map[string]string{"infra/source": "two\n"})
	next("a new commit", false)
	next("the new commit again", true)
	commit(map[string]string{"infra/source": "one\n"})
	next("the first content in a new commit", false)

	d.Env["NPM_CONFIG_LEGACY_PEER_DEPS"] = "true"
	next("dependencies that were installed again", false)
	next("the same dependencies", true)

	d.Env["TS_NODE_CACHE_DIRECTORY"] = t.TempDir()
	next("a directory of the user", false)
	next("the directory of the user again", true)
	delete(d.Env, "TS_NODE_CACHE_DIRECTORY")

	withoutCommands := d.Steps
	d.Steps = slices.Insert(slices.Clone(withoutCommands), 3, preRunStep())
	d.Deployment.PreRunCommands = []string{"echo three > source"}
	next("a program that a pre-run command writes", false)
	d.Steps, d.Deployment.PreRunCommands = withoutCommands, nil

	next("the same commit after other jobs", true)
	hook := must.Get(os.ReadFile(s.hookFile()))(t)
	s.hook(`case "$1" in up) exit 3;; esac`)
	s.next()
	s.hook(string(hook))
	next("dependencies that were installed again after a failure", false)
	s.hook(`case "$1" in up) d=${TS_NODE_CACHE_DIRECTORY%/*}; rm -rf "$d"; ln -s "$PWD" "$d";; esac`)
	s.next()
	s.hook(`case "$1" in up) echo "found: $(cat source)";; esac`)
	next("a link in the place of the directory", false)
}
