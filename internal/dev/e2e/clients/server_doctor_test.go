package clients

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/testcert"
)

// serverDoctor runs the server's doctor for the server of a site behind a proxy at a URL.
func serverDoctor(w *harness.Site, t *testing.T, url, caFile string) (diagnosis, int) {
	t.Helper()
	args := []string{
		"doctor", "--json", "--external-url", url, "--listen", strings.TrimPrefix(w.Server.URL, "http://"), "--data-dir", w.Server.DataDir,
		"--trusted-proxies", "127.0.0.1", "--client-address", "x-forwarded-for",
		"--oidc-issuer-url", w.Server.URL + "/oidc", // the server has no other one, because it does not know the frontend
	}
	if caFile != "" {
		args = append(args, "--ca-certificate-file", caFile)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(w.Bin, "workflow-server"), args...)
	cmd.Dir = t.TempDir()
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	d := diagnosis{text: out.String()}
	if jerr := json.Unmarshal(out.Bytes(), &d); jerr != nil {
		t.Fatalf("%v, %v: %s%s", err, jerr, &out, &stderr)
	}
	return d, cmd.ProcessState.ExitCode()
}

// TestClientsOfTheServerDoctor puts an nginx with too few settings in front of a server.
func TestClientsOfTheServerDoctor(t *testing.T) {
	nginx, err := child.Find("nginx")
	if err != nil {
		if os.Getenv("WORKFLOW_REQUIRE_TIERS") == "all" {
			t.Fatal(err)
		}
		t.Skipf("%v: install the package nginx", err)
	}
	w := harness.StartSite(t, "", "--trusted-proxies", "127.0.0.1", "--client-address", "x-forwarded-for")
	ca := must.Get(testcert.NewAuthority("the company"))(t)
	dir := t.TempDir()
	caFile, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	harness.Write(t, caFile, ca.PEM(), 0o600)
	must.OK(t, testcert.Write(must.Get(ca.Issue(&x509.Certificate{}, "localhost"))(t), cert, key))
	port := strconv.Itoa(must.Get(child.FreePort("127.0.0.1"))(t))
	file := filepath.Join(dir, "config")
	harness.Write(t, file, fmt.Appendf(nil, `
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {}
http {
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  server {
    listen 127.0.0.1:%s ssl;
    ssl_certificate %s;
    ssl_certificate_key %s;
    location / {
      proxy_pass %s;
    }
  }
}
`, port, cert, key, w.Server.URL), 0o600)
	proxy := must.Get(child.StartCommand(exec.CommandContext(t.Context(), nginx, "-p", dir, "-c", file, "-e", "stderr"), filepath.Join(dir, "log")))(t)
	t.Cleanup(func() {
		_ = proxy.Stop(syscall.SIGTERM, harness.Patience)
		if t.Failed() {
			t.Logf("%s", harness.Read(t, filepath.Join(dir, "log")))
		}
	})
	url := "https://localhost:" + port
	must.OK(t, harness.Until(t.Context(), func() (bool, error) {
		found, _ := serverDoctor(w, t, url, caFile)
		return found.status("tcp") == "ok", nil
	}))
	found, code := serverDoctor(w, t, url, caFile)
	if code != 1 || found.OK {
		t.Errorf("exit code %d", code)
	}
	for name, finding := range map[string]string{"client": "client-forged", "bodies": "bodies-refused", "headers": "header-host"} {
		if got := found.finding(name); got != finding {
			t.Errorf("%s: the finding is %q, want %q", name, got, finding)
		}
	}
	// Without its own authority, no client trusts the URL.
	found, _ = serverDoctor(w, t, url, "")
	if got := found.finding("tls"); got != "url-authority" {
		t.Errorf("without the authority: %q", got)
	}
	if t.Failed() {
		t.Log(found.text)
	}
}
