package clients

import (
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/testcert"
)

// TestClientsWithAPrivateAuthority runs the stock CLI, with the commands of docs/tls.md, against a server whose
// certificate is from an authority that the system does not trust.
func TestClientsWithAPrivateAuthority(t *testing.T) {
	bin, tools := harness.Programs(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	ca := must.Get(testcert.NewAuthority("the company"))(t)
	harness.Write(t, file("company-ca.pem"), ca.PEM(), 0o600)
	must.OK(t, testcert.Write(must.Get(ca.Issue(&x509.Certificate{}, "localhost"))(t), file("cert.pem"), file("key.pem")))
	port := must.Get(child.FreePort("127.0.0.1"))(t)
	address := fmt.Sprintf("https://localhost:%d", port)
	harness.Write(t, file("server.yaml"), fmt.Appendf(nil, "external_url: %s\nlisten: 127.0.0.1:%d\ndata_dir: %s\ntls_cert_file: %s\ntls_key_file: %s\n",
		address, port, file("data"), file("cert.pem"), file("key.pem")), 0o600)
	program := filepath.Join(bin, "workflow-server")
	server := must.Get(child.Start(t.Context(), program, []string{"serve", "--config", file("server.yaml")}, os.Environ(), file("server.log")))(t)
	t.Cleanup(func() {
		_ = server.Stop(syscall.SIGTERM, harness.Patience)
		if t.Failed() {
			t.Logf("%s", harness.Read(t, file("server.log")))
		}
	})
	must.OK(t, harness.Until(t.Context(), func() (bool, error) {
		return exec.CommandContext(t.Context(), program, "healthcheck", "--config", file("server.yaml")).Run() == nil, nil
	}))

	home := file("home")
	must.OK(t, tools.Home(home))
	project := file("project")
	must.OK(t, os.MkdirAll(project, 0o700))
	must.OK(t, os.MkdirAll(filepath.Join(home, "user"), 0o700))
	harness.Write(t, filepath.Join(project, "Pulumi.yaml"), []byte("name: box\nruntime: yaml\noutputs:\n  word: hello\n"), 0o600)
	harness.Write(t, filepath.Join(project, "company-ca.pem"), ca.PEM(), 0o600)
	token := strings.TrimSpace(string(harness.Read(t, file("data/admin-token"))))
	run := func(script string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
		cmd.Dir, cmd.Env = project, tools.Env(home, "", token)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("pulumi login " + address); err == nil || !strings.Contains(out, "certificate") {
		t.Errorf("without the authority, the CLI logs in: %v\n%s", err, out)
	}
	commands := strings.ReplaceAll(harness.Block(t, "tls.md", "private authority"), "https://deployments.example.com", address)
	out, err := run(commands + "pulumi stack init organization/dev\npulumi up --yes --skip-preview\npulumi stack output word\n")
	if err != nil || !strings.HasSuffix(strings.TrimSpace(out), "hello") || !strings.Contains(out, address) {
		t.Errorf("with the authority: %v\n%s", err, out)
	}
}
