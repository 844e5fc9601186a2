package runner_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/workflow"
)

// TestSelectedVersion checks that no step runs unless pulumi has a version that the job selects, that the
// agent's pulumi precedes all others, and that the version is recorded.
func TestSelectedVersion(t *testing.T) {
	const image, agents = "3.100.2", "3.276.0"
	for _, c := range []struct {
		name, wanted string
		brought      bool
		version      string // which runs; "" for none
		says         string
	}{
		{"any", "", false, image, ""},
		{"the image's", "^3.100", false, image, ""},
		{"the agent's", ">=3.200", true, agents, ""},
		{"neither", "3.200", false, "", "the deployment requires pulumi 3.200, but the job has pulumi 3.100.2: use an image"},
		{"not what the agent brought", "3.100.2", true, "", "the job has pulumi 3.276.0"},
		{"unknown form", "newest", false, "", "PULUMI_DEPLOY_PULUMI_VERSION"},
	} {
		t.Run(c.name, func(t *testing.T) {
			op := workflow.OperationUpdate
			p := newProgram(t, op, yamlProject, preRunStep(), pulumiStep(op))
			bin, _, _ := strings.Cut(strings.TrimPrefix(p.environ[len(p.environ)-2], "PATH="), ":")
			own := t.TempDir()
			for dir, version := range map[string]string{bin: image, own: agents} {
				script := "#!/bin/sh\nif [ \"$1\" = version ]; then echo v" + version + "; exit; fi\necho " + version + " > \"$CALLS.ran\"\n"
				if err := os.WriteFile(filepath.Join(dir, "pulumi"), []byte(script), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			// A step that changes the PATH must not hide the agent's pulumi.
			p.launch.Definition.Deployment.PreRunCommands = []string{`echo "PATH=` + bin + `:$PATH" >> "$PULUMI_ENV"; touch "$CALLS.before"`}
			p.launch.Definition.Deployment.PulumiVersion = c.wanted
			if c.brought {
				p.launch.PulumiDir = own
			}
			code, _ := p.run()
			if got := strings.TrimSpace(p.read(".ran")); got != c.version || (code == 0) != (c.version != "") {
				t.Errorf("pulumi %q ran, with exit code %d; want %q\n%s", got, code, c.version, p.text(1))
			}
			if c.version == "" {
				result := p.oneResult()
				if result.Reason != workflow.ReasonInvalidJob || !strings.Contains(result.Message, c.says) || !strings.Contains(p.text(1), c.says) {
					t.Errorf("the job fails with %q: %s\n%s", result.Reason, result.Message, p.text(1))
				}
				if _, err := os.Stat(p.calls + ".before"); err == nil {
					t.Error("a step ran before the version was checked")
				}
				return
			}
			recorded := ""
			p.server.Update(func() { recorded = p.job.Pulumi })
			if want := map[bool]string{true: c.version}[c.wanted != ""]; recorded != want {
				t.Errorf("the recorded version is %q, want %q", recorded, want)
			}
		})
	}
}
