package steps

import (
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/workflow"
)

func TestShellText(t *testing.T) {
	step := workflow.Step{Name: "Pre-run command 1", Run: workflow.RunPreRun}
	d := &workflow.Deployment{PreRunCommands: []string{"if true; then\r\n  printf 'a\rb'\r\nfi\r"}}
	p, err := ParamsFor(t.TempDir(), t.TempDir(), nil, d, step, 0)
	if want := "if true; then\n  printf 'a\rb'\nfi"; err != nil || p.Command != want {
		t.Errorf("the command is %+v, %v, want %q", p, err, want)
	}
}

func TestFindShell(t *testing.T) {
	for name, want := range map[string]string{"": "bash", "sh": "sh", "/bin/sh": "sh"} {
		if got, err := FindShell(name); err != nil || filepath.Base(got[0]) != want {
			t.Errorf("%q: %v, %v, want %s", name, got, err, want)
		}
	}
	if _, err := FindShell("no-such-shell"); err == nil || !strings.Contains(err.Error(), `the shell "no-such-shell" is not installed`) {
		t.Errorf("missing shell: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := FindShell(""); err == nil || !strings.Contains(err.Error(), "neither bash nor sh") {
		t.Errorf("no shell: %v", err)
	}
}
