package cluster

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// TestClusterRunsDeployments runs deployments with the stock CLI, and an evaluation of the state that the first one
// leaves, with an agent with default settings. It checks that they leave nothing in the cluster.
func TestClusterRunsDeployments(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := harness.StartClusterSite(t)
	must.Get(w.StartClusterAgent(ctx, nil))(t)
	repo := w.Repo(ctx, t)
	s := w.NewStack(ctx, t, "box", "dev", w.Image, nil)
	s.Audit(ctx, t)
	for _, tc := range []struct{ operation, result string }{{"update", "+ 2 created"}, {"destroy", "- 2 deleted"}} {
		limited, cancel := context.WithTimeout(ctx, 5*time.Minute)
		cli := exec.CommandContext(limited, filepath.Join(w.Tools.Dir, "pulumi"), "deployment", "run", tc.operation, repo.URL,
			"--stack", w.Server.Organization+"/box/dev", "--git-branch", "main", "--suppress-stream-logs=false",
			"--inherit-settings", "--pre-run-command", "echo KIND=pod >> /PULUMI_ENV",
			"--pre-run-command", harness.RunLanguageHost, "--pre-run-command", harness.OpenEnvironment,
			"--pre-run-command", "echo $KIND $(hostname) has ${#PULUMI_OIDC_TOKEN} characters; seq 20000 | sed 's/^/line /'")
		cli.Env = w.Tools.Env(w.Home, w.Server.URL, w.Server.Token)
		out, err := cli.CombinedOutput()
		cancel()
		log := string(out)
		if err != nil {
			t.Fatalf("pulumi deployment run %s: %v\n%s", tc.operation, err, log[max(0, len(log)-5000):])
		}
		for _, want := range []string{"pod pulumi-workflow-runner-", "line 1\n", "line 10000\n", "line 20000\n", tc.result} {
			if !strings.Contains(log, want) {
				t.Errorf("the output of %s lacks %q; it ends with\n%s", tc.operation, want, log[max(0, len(log)-2000):])
			}
		}
		if tc.operation == "update" {
			if !strings.Contains(log, "[advisory]  no-random") || !strings.Contains(log, "the environment has opened-in-the-job") {
				t.Errorf("the update lacks a violation or the environment; its output ends with\n%s", log[max(0, len(log)-2000):])
			}
			s.Evaluated(ctx, t)
		}
	}
	var left []string
	limited, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	err := harness.Until(limited, func() (done bool, err error) {
		left, err = w.Objects(limited)
		return len(left) == 0, err
	})
	if err != nil {
		t.Errorf("after the deployments, the namespace contains %v (%v)", left, err)
	}
}
