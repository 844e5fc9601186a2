package clients

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// TestAutomationAPI runs a stack's whole life in deployments through the remote workspaces of the
// Automation API.
func TestAutomationAPI(t *testing.T) {
	t.Parallel()
	bin, tools := harness.Programs(t)
	w := must.Get(harness.NewSite(t.Context(), bin, tools, t.TempDir(), ""))(t)
	t.Cleanup(w.Close)
	must.Get(w.StartAgent(t.Context(), "process", map[string]string{"max_concurrent_jobs": "2"}))(t)
	for _, test := range []struct {
		language  string
		available func() (string, bool)
		program   func(context.Context, io.Writer) (string, error)
		run       []string
	}{
		{"go", func() (string, bool) { return "", true }, lab.AutomationGo, nil},
		{"nodejs", lab.NodeAvailable, lab.AutomationNode, []string{"node"}},
	} {
		t.Run(test.language, func(t *testing.T) {
			t.Parallel()
			if reason, ok := test.available(); !ok {
				t.Skip(reason)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			program := must.Get(test.program(ctx, os.Stderr))(t)
			name := w.Server.Organization + "/" + test.language + "/dev"
			repo, _, err := w.Git.NewRepo(ctx, test.language, map[string]string{"Pulumi.yaml": "name: " + test.language + `
runtime: yaml
resources:
  value:
    type: lab:Random
    properties: {bytes: 4}
outputs:
  hex: ${value.hex}
`})
			must.OK(t, err)
			must.OK(t, w.Server.Call(ctx, "POST", "/api/stacks/"+w.Server.Organization+"/"+test.language, map[string]string{"stackName": "dev"}, nil))
			settings := map[string]any{"operationContext": map[string]any{"environmentVariables": w.JobEnv()}}
			must.OK(t, w.Server.Call(ctx, "PUT", "/api/stacks/"+name+"/deployments/settings", settings, nil))
			args := append(test.run, program, name, repo.URL)
			cmd := exec.CommandContext(ctx, args[0], args[1:]...)
			// The CLI of this version searches a project above the workspace's temporary directory,
			// even for remote operations (pulumi/pulumi#24050).
			tmp := t.TempDir()
			must.OK(t, os.WriteFile(filepath.Join(tmp, "Pulumi.yaml"), []byte("name: none\nruntime: yaml\n"), 0o644))
			cmd.Env = append(tools.Env(w.Home, w.Server.URL, w.Server.Token), "TMPDIR="+tmp)
			out, err := cmd.CombinedOutput()
			text := string(out)
			if err != nil {
				t.Fatalf("the program failed: %v\n%s", err, text)
			}
			for _, want := range []string{
				`previewed: true`, `updated: update succeeded \d+ with 1 outputs`, `refreshed: refresh succeeded`,
				`destroyed: destroy succeeded`, `history: 3 updates`, `level=info key=`,
			} {
				if !regexp.MustCompile(want).MatchString(text) {
					t.Errorf("the program printed nothing like %q:\n%s", want, text)
				}
			}
			if strings.Contains(text, "s3cret") {
				t.Errorf("a secret is in the output:\n%s", text)
			}
		})
	}
}
