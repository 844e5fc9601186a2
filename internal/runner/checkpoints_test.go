package runner_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/workflow"
)

// TestCheckpointsAreSkipped checks for which versions of pulumi and which settings the runner skips
// checkpoints.
func TestCheckpointsAreSkipped(t *testing.T) {
	update, set := workflow.OperationUpdate, "PULUMI_SKIP_CHECKPOINTS="
	for _, c := range []struct {
		name      string
		version   string
		offered   bool // by the server
		env       map[string]string
		forwarded map[string]string
		want      string // value of the variable
	}{
		{name: "second manager", version: "v3.274.0", offered: true, want: "true"},
		{name: "newer", version: "v3.300.1-alpha.1", offered: true, want: "true"},
		{name: "pre-release", version: "v3.274.0-alpha.xe2f4b1", offered: true, want: "true"},
		{name: "older", version: "v3.273.0", offered: true},
		{name: "other major version", version: "v4.300.0", offered: true},
		{name: "unknown version", version: "3.276", offered: true},
		{name: "no version", version: "'; exit 1; '", offered: true},
		{name: "server without a check", version: "v3.276.0"},
		{name: "without journal", version: "v3.276.0", offered: true, env: map[string]string{"PULUMI_DISABLE_JOURNALING": "true"}},
		{name: "chosen by the user", version: "v3.276.0", offered: true, env: map[string]string{"PULUMI_SKIP_CHECKPOINTS": "false"}, want: "false"},
		{name: "other backend", version: "v3.276.0", offered: true, forwarded: map[string]string{"PULUMI_BACKEND_URL": "file:///states"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProgram(t, update, yamlProject, pulumiStep(update))
			bin, _, _ := strings.Cut(strings.TrimPrefix(p.environ[len(p.environ)-2], "PATH="), ":")
			script := "#!/bin/sh\nif [ \"$1\" = version ]; then pwd > \"$CALLS.version\"; echo '" + c.version + "'; exit; fi\n" + fakePulumi
			if err := os.WriteFile(filepath.Join(bin, "pulumi"), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			d := p.launch.Definition
			d.Deployment.SkipCheckpoints = c.offered
			maps.Copy(d.Env, c.env)
			p.launch.ForwardedEnv = c.forwarded
			if code, _ := p.run(); code != 0 {
				t.Fatalf("exit code %d: %s%s", code, p.text(1), p.text(2))
			}
			_, got, found := strings.Cut("\n"+p.read(".env"), "\n"+set)
			got, _, _ = strings.Cut(got, "\n")
			if got != c.want || found != (c.want != "") {
				t.Errorf("the variable is %q, want %q", got, c.want)
			}
			asked := p.read(".version") != ""
			if might := c.offered && c.env == nil && c.forwarded == nil; asked != might {
				t.Errorf("pulumi was asked for its version: %v, want %v", asked, might)
			}
			if want := filepath.Join(p.dir, "work", "infra"); asked && strings.TrimSpace(p.read(".version")) != want {
				t.Errorf("pulumi was asked for its version in %s, want %s", p.read(".version"), want)
			}
		})
	}
}
