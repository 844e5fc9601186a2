package runner_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/runner/workspace"
	"workflowagent/internal/workflow"
)

// stack is a program whose jobs share a workspace.
type stack struct {
	*program
	ws string
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
	s := &stack{p, t.TempDir()}
	d := p.launch.Definition.Deployment
	d.Workspace = &workflow.Workspace{Scope: strings.Repeat("a1", 32), Key: "key"}
	bin := t.TempDir()
	for name, text := range map[string]string{"node": fakeNode, "pulumi": fakePulumi} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.environ = append(s.environ, workspace.Env+"="+s.ws, "HOOK="+filepath.Join(bin, "hook"), "PATH="+bin+":"+os.Getenv("PATH"))
	return s
}

// hook sets the shell text that the stand-in for pulumi runs in the program's directory.
func (s *stack) hook(text string) {
	s.t.Helper()
	for _, entry := range s.environ {
		if file, ok := strings.CutPrefix(entry, "HOOK="); ok {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

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
	code, log := s.next()
	if code != 0 || s.installs() != 1 || !strings.Contains(log, "Cloning") || !strings.Contains(log, "nothing kept by an earlier job") {
		t.Fatalf("first job: exit code %d, %d installations:\n%s%s", code, s.installs(), log, s.log.String())
	}
	code, log = s.next()
	if code != 0 || s.installs() != 0 || !strings.Contains(log, "Updating the checkout of") ||
		!strings.Contains(log, "Workspace: kept checkout (fetched 0 B), dependencies (lock file unchanged)") {
		t.Errorf("second job: exit code %d, %d installations:\n%s%s", code, s.installs(), log, s.log.String())
	}
}
