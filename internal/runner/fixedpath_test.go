package runner_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// TestPathOfTheDocumentation appends a variable to the path of Pulumi's documentation, FIXED below.
func TestPathOfTheDocumentation(t *testing.T) {
	const refused = "error: the command was not run because it uses the path FIXED"
	for _, tt := range []struct {
		name, command string
		container     string // how the executor makes the path the job's file; "" on a host
		exists        bool   // on the host
		log, next     string // in the logs of this step and the next one
	}{
		{name: "on a host", command: "echo X=1 >> FIXED", log: refused},
		{name: "in a line of a script, quoted", command: "set -e\nif true; then echo X=1 >>\"FIXED\"; fi", log: refused},
		{name: "as an argument", command: "echo X=1 | tee -a FIXED; true", log: refused},
		{name: "through a variable", command: `f=$(echo FIX ED | tr -d " "); echo X=1 >> "$DIR/$f"`, log: "warning: during this step the file FIXED was written"},
		{name: "again", command: `f=$(echo FIX ED | tr -d " "); echo X=1 >> "$DIR/$f"`, exists: true, log: "warning: during this step the file FIXED was written"},
		{name: "in a comment, and as another file's end", command: "# FIXED\necho X=1 > ./FIXED_NOT || echo X=1 >> $PULUMI_ENV", next: "x is 1\n"},
		{name: "not used, with a file that exists", command: "echo X=1 >> $PULUMI_ENV", exists: true, next: "x is 1\n"},
		{name: "in a container", command: "echo X=1 >> FIXED", container: "link", next: "x is 1\n"},
		{name: "in a container after it was removed", command: "rm $PULUMI_ENV; echo X=1 >> FIXED", container: "link", next: "x is 1\n"},
		{name: "in a pod", command: "echo X=1 >> FIXED", container: "mount", next: "x is 1\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			fixed := filepath.Join(dir, "FIXED")
			command := tt.command
			if !strings.Contains(command, "$DIR") {
				command = strings.ReplaceAll(command, "FIXED", fixed)
			}
			h := newHarness(t, shellSteps(command, `echo "x is $X"`))
			h.fixed, h.environ = fixed, append(h.environ, "DIR="+dir)
			var err error
			switch {
			case tt.container == "link":
				err = os.Symlink(filepath.Join(h.dir, protocol.FileEnv), fixed)
			case tt.container == "mount":
				h.dir = filepath.Join(h.dir, "job")
				mounted := filepath.Join(filepath.Dir(h.dir), protocol.FileEnv)
				if err = os.WriteFile(mounted, nil, 0o600); err == nil {
					err = os.Link(mounted, fixed)
				}
			case tt.exists:
				err = os.WriteFile(fixed, []byte("OLD=1\n"), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			code, _ := h.run()
			if tt.log != "" {
				h.wantLog(1, strings.ReplaceAll(tt.log, "FIXED", fixed), `"$PULUMI_ENV"`)
			} else if text := h.text(1); strings.Contains(text, "warning") {
				t.Errorf("the log has a warning:\n%s", text)
			}
			if tt.log == refused {
				if code == 0 {
					t.Error("the job succeeded")
				}
				if _, err := os.Stat(fixed); err == nil {
					t.Error("the command was run")
				}
				return
			}
			if code != 0 {
				t.Errorf("exit code %d", code)
			}
			h.wantLog(2, tt.next)
		})
	}
}

func TestPathOfTheDocumentationInPreRunCommands(t *testing.T) {
	p := newProgram(t, workflow.OperationPreview, map[string]string{"infra/Pulumi.yaml": "name: x\nruntime: yaml\n"},
		workflow.Step{Name: "Pre-run", Run: workflow.RunPreRun})
	p.fixed = filepath.Join(t.TempDir(), "FIXED")
	p.launch.Definition.Deployment.PreRunCommands = []string{"echo X=1 >> " + p.fixed}
	if code, _ := p.run(); code == 0 {
		t.Error("the job succeeded")
	}
	p.wantLog(2, "the command was not run because it uses the path "+p.fixed)
	if _, err := os.Stat(p.fixed); err == nil {
		t.Error("the command was run")
	}
}
