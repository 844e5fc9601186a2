package clients

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
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

// TestClientsBehindAFrontend runs the proxies' configurations of docs/tls.md before one server. Through each of them
// an agent runs a deployment, the doctor's large body is not refused, and a client that forges its address is known by
// its own.
func TestClientsBehindAFrontend(t *testing.T) {
	frontends := []struct {
		name string
		args func(dir, config string) []string
		wrap string // around the block of the page, with %s
	}{
		{"nginx", func(dir, config string) []string { return []string{"nginx", "-p", dir, "-c", config, "-e", "stderr"} }, `
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
%s}
`},
		{"haproxy", func(_, config string) []string { return []string{"haproxy", "-db", "-f", config} }, "%s"},
		{"caddy", func(_, config string) []string {
			return []string{"caddy", "run", "--adapter", "caddyfile", "--config", config}
		}, "{\n  admin off\n  auto_https disable_redirects\n  skip_install_trust\n}\n%s"},
	}
	for _, f := range frontends {
		if _, err := child.Find(f.name); err != nil {
			if os.Getenv("WORKFLOW_REQUIRE_TIERS") == "all" {
				t.Fatal(err)
			}
			t.Skipf("%v: install the packages nginx, haproxy and caddy", err)
		}
	}
	w := harness.StartSite(t, "", "--trusted-proxies", "127.0.0.1", "--client-address", "x-forwarded-for", "--log-level", "debug", "--log-format", "json")
	ca := must.Get(testcert.NewAuthority("the company"))(t)
	caFile, cert, key := filepath.Join(w.Dir, "ca.pem"), filepath.Join(w.Dir, "cert.pem"), filepath.Join(w.Dir, "key.pem")
	harness.Write(t, caFile, ca.PEM(), 0o600)
	must.OK(t, testcert.Write(must.Get(ca.Issue(&x509.Certificate{}, "localhost"))(t), cert, key))
	both := filepath.Join(w.Dir, "both.pem")
	harness.Write(t, both, append(harness.Read(t, cert), harness.Read(t, key)...), 0o600)
	repo := w.Repo(t.Context(), t)
	const address = "127.0.0.2" // the client's; that of the proxy is trusted
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}}}
	t.Cleanup(client.CloseIdleConnections)
	for _, f := range frontends {
		t.Run(f.name, func(t *testing.T) {
			ctx := t.Context()
			dir := t.TempDir()
			port := must.Get(child.FreePort("127.0.0.1"))(t)
			config := fmt.Sprintf(f.wrap, strings.NewReplacer(
				"listen 443 ", "listen 127.0.0.1:"+strconv.Itoa(port)+" ",
				"bind :443 ", "bind 127.0.0.1:"+strconv.Itoa(port)+" ",
				"deployments.example.com {", "https://localhost:"+strconv.Itoa(port)+" {\n  bind 127.0.0.1",
				"deployments.example.com", "localhost",
				"/etc/ssl/deployments.pem", cert, "/etc/ssl/deployments.key", key, "/etc/ssl/deployments-with-key.pem", both,
				"127.0.0.1:8800", strings.TrimPrefix(w.Server.URL, "http://"),
			).Replace(harness.Block(t, "tls.md", f.name)))
			file := filepath.Join(dir, "config")
			harness.Write(t, file, []byte(config), 0o600)
			args := f.args(dir, file)
			cmd := exec.CommandContext(ctx, must.Get(child.Find(args[0]))(t), args[1:]...)
			cmd.Env = append(os.Environ(), "HOME="+dir)
			proxy := must.Get(child.StartCommand(cmd, filepath.Join(dir, "log")))(t)
			t.Cleanup(func() {
				_ = proxy.Stop(syscall.SIGTERM, harness.Patience)
				if t.Failed() {
					t.Logf("%s\n%s", config, harness.Read(t, filepath.Join(dir, "log")))
				}
			})
			url := "https://localhost:" + strconv.Itoa(port)
			call := func(method, path, body string) (*http.Response, error) {
				req := must.Get(http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(body)))(t)
				req.Header.Set("X-Forwarded-For", "198.51.100.1")
				req.Header.Set("Forwarded", "for=198.51.100.2")
				req.Header.Set("User-Agent", "forger-"+f.name)
				res, err := client.Do(req)
				if err == nil {
					_ = res.Body.Close()
				}
				return res, err
			}
			waiting, cancel := context.WithTimeout(ctx, harness.Patience)
			defer cancel()
			var last error
			if err := harness.Until(waiting, func() (bool, error) {
				res, err := call(http.MethodGet, "/healthz", "")
				last = err
				return err == nil && res.StatusCode == http.StatusOK, nil
			}); err != nil {
				t.Fatalf("%v: %v", err, last)
			}
			path := "/api/user/" + f.name
			// The doctor sends a large body, because an address that does not exist can answer before it has read one.
			if res := must.Get(call(http.MethodPost, path, "small"))(t); res.StatusCode >= 500 {
				t.Errorf("a request with a body: %s", res.Status)
			}
			must.OK(t, harness.Until(waiting, func() (bool, error) {
				return strings.Contains(string(harness.Read(t, w.Server.LogFile)), path), nil
			}))
			for line := range strings.Lines(string(harness.Read(t, w.Server.LogFile))) {
				if strings.Contains(line, path) && !strings.Contains(line, `"remote":"`+address+`"`) {
					t.Errorf("a client that forged its address is logged as %s", line)
				}
			}

			w.AgentURL = url
			agent := must.Get(w.StartAgent(ctx, "process", map[string]string{"ca_certificate_file": caFile}))(t)
			s := w.NewStack(ctx, t, "box", f.name, "", nil)
			d := s.Finish(ctx, t, s.Deploy(ctx, t, "update", repo.URL))
			if d.Status != "succeeded" {
				t.Errorf("the deployment ended as %+v; its log:\n%s", d, s.Log(ctx, t, d))
			}
			found, code := serverDoctor(w, t, url, caFile)
			for _, name := range []string{"server", "dns", "tcp", "tls", "console", "client", "headers", "streams", "bodies", "clock"} {
				if found.status(name) != "ok" {
					t.Errorf("the server's doctor about %s: %s", name, found.status(name))
				}
			}
			if finding := found.finding("url"); finding != "url-loopback" {
				t.Errorf("the server's doctor about the URL: %q", finding)
			}
			if code != 0 || !found.OK {
				t.Errorf("the server's doctor: exit code %d: %s", code, found.text)
			}
			must.OK(t, agent.Process.Stop(syscall.SIGTERM, harness.Patience))
			w.Agents = nil
		})
	}
}
