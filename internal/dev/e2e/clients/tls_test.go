package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// TestPrivateAuthority runs a deployment on a server that terminates TLS with a certificate of a private authority. The
// agent gets the authority from its setting, the job's runner and CLI from the agent, and the CLI of a user from
// SSL_CERT_FILE.
func TestPrivateAuthority(t *testing.T) {
	ctx := t.Context()
	w, caFile := harness.StartSecureSite(t)
	must.Get(w.StartAgent(ctx, "process", map[string]string{"ca_certificate_file": caFile}))(t)
	s := w.NewStack(ctx, t, "box", "dev", "", nil)
	d := s.Finish(ctx, t, s.Deploy(ctx, t, "update", w.Repo(ctx, t).URL))
	if d.Status != "succeeded" {
		t.Errorf("the deployment ended as %+v; its log:\n%s", d, s.Log(ctx, t, d))
	}
	whoami := func(variable string) (string, error) {
		cmd := exec.CommandContext(ctx, filepath.Join(w.Tools.Dir, "pulumi"), "whoami", "--non-interactive")
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, "PULUMI_HOME="+t.TempDir(), "PULUMI_SKIP_UPDATE_CHECK=true", "PULUMI_BACKEND_URL="+w.Server.URL,
			"PULUMI_ACCESS_TOKEN="+w.Server.Token, variable)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := whoami("SSL_CERT_FILE=" + caFile); err != nil || !strings.HasSuffix(strings.TrimSpace(out), "admin") {
		t.Errorf("the user's CLI: %v\n%s", err, out)
	}
	if out, err := whoami("UNUSED="); err == nil || !strings.Contains(out, "certificate") {
		t.Errorf("without the authority, the user's CLI: %v\n%s", err, out)
	}
}
