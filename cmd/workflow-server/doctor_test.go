package main

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/checkup"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/dev/testcert"
	"workflowagent/internal/server/config"
)

// serveWith runs the server with a configuration file until the test finishes.
func serveWith(t *testing.T, path string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	log, out := io.Pipe()
	root := newRootCommand("v9.8.7")
	root.SetOut(io.Discard)
	root.SetErr(out)
	root.SetArgs([]string{"serve", "--config", path})
	serving, done := make(chan struct{}), make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		_ = out.Close() // ends the loop below
		done <- err
	}()
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if strings.Contains(lines.Text(), "msg=serving") {
				close(serving)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server: %v", err)
		}
		<-read
	})
	select {
	case <-serving:
	case err := <-done:
		done <- nil
		t.Fatalf("the server ended: %v", err)
	}
}

// TestHealthcheck checks servers that listen in every way, and what runs in their place.
func TestHealthcheck(t *testing.T) {
	dir := must.Get(os.MkdirTemp("", "wfh"))(t) // short enough for a socket's path
	t.Cleanup(func() { os.RemoveAll(dir) })
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	ca := must.Get(testcert.NewAuthority("the company"))(t)
	must.OK(t, testcert.Write(must.Get(ca.Issue(&x509.Certificate{}, "deployments.example.com"))(t), cert, key))
	for name, settings := range map[string]string{
		"TCP":                                 "listen: 127.0.0.1:PORT\n",
		"all addresses":                       "listen: 0.0.0.0:PORT\n",
		"TLS":                                 "listen: 127.0.0.1:PORT\ntls_cert_file: " + cert + "\ntls_key_file: " + key + "\n",
		"a unix socket":                       "listen: unix:" + dir + "/http.sock\ntrusted_proxies: unix\nclient_address: x-forwarded-for\n",
		"the PROXY protocol":                  "listen: 127.0.0.1:PORT\ntrusted_proxies: 192.0.2.1\nclient_address: proxy-protocol\n",
		"the PROXY protocol on a unix socket": "listen: unix:" + dir + "/proxy.sock\ntrusted_proxies: unix\nclient_address: proxy-protocol\n",
	} {
		t.Run(name, func(t *testing.T) {
			port := must.Get(child.FreePort("127.0.0.1"))(t)
			path := configFile(t, strings.ReplaceAll(settings, "PORT", fmt.Sprint(port))+"external_url: https://deployments.example.com\ndata_dir: "+t.TempDir()+"\n")
			if _, code, err := execute(t, "healthcheck", "--config", path); code != program.ExitFailed || err == nil {
				t.Errorf("without a server: %d, %v", code, err)
			}
			serveWith(t, path)
			if out, code, err := execute(t, "healthcheck", "--config", path); code != program.ExitOK || out != "" {
				t.Errorf("%d, %v: %s", code, err, out)
			}
		})
	}
	if _, code, err := execute(t, "healthcheck", "--timeout", "-1s"); code != program.ExitUsage || err == nil {
		t.Errorf("a negative timeout: %d, %v", code, err)
	}
}

func TestDoctorCommand(t *testing.T) {
	port := must.Get(child.FreePort("127.0.0.1"))(t)
	path := configFile(t, fmt.Sprintf("listen: 127.0.0.1:%d\ndata_dir: %s\n", port, t.TempDir()))
	if out, code, err := execute(t, "doctor", "--config", path); code != program.ExitOK || !strings.Contains(out, "start the server") || !strings.Contains(out, " ok, ") {
		t.Errorf("before the first start: %d, %v\n%s", code, err, out)
	}
	serveWith(t, path)
	out, code, err := execute(t, "doctor", "--json", "--config", path)
	var report checkup.Report
	if code != program.ExitOK || json.Unmarshal([]byte(out), &report) != nil || !report.OK || report.Version != "v9.8.7" || len(report.Checks) < 20 {
		t.Errorf("%d, %v\n%s", code, err, out)
	}
	if out, code, err := execute(t, "doctor", "--listen", "192.0.2.1:80", "--config", path); code != program.ExitFailed || !strings.Contains(err.Error(), "a check failed") {
		t.Errorf("a wrong address: %d, %v\n%s", code, err, out)
	}
	if out, code, err := execute(t, "doctor", "--config", configFile(t, "lisen: x\n")); code != program.ExitFailed || !strings.Contains(out, "did you mean listen?") {
		t.Errorf("a wrong file: %d, %v\n%s", code, err, out)
	}
	if _, code, err := execute(t, "doctor", "--ca-certificate-file", "/does/not/exist"); code != program.ExitUsage {
		t.Errorf("no authorities: %d, %v", code, err)
	}
	if _, code, err := execute(t, "doctor", "--ca-certificate-file", path); code != program.ExitUsage || !strings.Contains(err.Error(), "no certificate in PEM") {
		t.Errorf("a file without authorities: %d, %v", code, err)
	}
}

// TestDoctorAsRoot checks that root opens the database as the user of the server, who could have replaced it.
func TestDoctorAsRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	storetest.OnSQLite(t)
	const other = 12345
	h := newHost(t)
	data, secret := h.dir("data", other), filepath.Join(h.dir("secret", 0), "secret.db")
	stop := h.serve(other, "--data-dir", data)
	stop(syscall.SIGTERM)
	result := func() (r checkup.Result) {
		out, problem, _ := h.says(0, "doctor", "--json", "--offline", "--data-dir", data, "--external-url", "https://deployments.example.com")
		var report checkup.Report
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("%v: %s%s", err, out, problem)
		}
		return report.Checks[slices.IndexFunc(report.Checks, func(r checkup.Result) bool { return r.Name == "database" })]
	}
	if r := result(); r.Status != checkup.StatusOK || !strings.Contains(r.Found, "SQLite") {
		t.Errorf("a server's database: %+v", r)
	}
	database := filepath.Join(data, "server.db")
	must.OK(t, os.Rename(database, secret))
	must.OK(t, os.Chown(secret, 0, 0))
	must.OK(t, os.Symlink(secret, database))
	must.OK(t, os.Lchown(database, other, other))
	if r := result(); r.Status != checkup.StatusFail || !strings.Contains(r.Found, "cannot be trusted") {
		t.Errorf("a link to root's database: %+v", r)
	}
	if left := must.Get(os.ReadDir(filepath.Dir(secret)))(t); len(left) != 1 {
		t.Errorf("next to root's database are %v", left)
	}
}

func TestConfigureCommand(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "server.yaml")
	args := []string{"configure", "--config", file, "--external-url", "https://deployments.example.com", "--data-dir", filepath.Join(dir, "data"), "--set", "log_level=debug", "--no-check"}
	if out, code, err := execute(t, args...); code != program.ExitOK || !strings.Contains(out, "Wrote "+file) {
		t.Fatalf("%d, %v: %s", code, err, out)
	}
	c := must.Get(config.Load(config.LoadOptions{Path: file, UID: os.Geteuid(), Cwd: dir}))(t)
	if c.ExternalURL != "https://deployments.example.com" || c.LogLevel.String() != "debug" {
		t.Errorf("got %+v", c)
	}
	out, code, err := execute(t, append(args, "--json")...)
	var result struct {
		File    string
		Written bool
		Changed []string
		Checks  []checkup.Result
	}
	if code != program.ExitOK || json.Unmarshal([]byte(out), &result) != nil || result.File != file || result.Written || result.Changed == nil || result.Checks == nil {
		t.Errorf("%d, %v: %s", code, err, out)
	}
	if _, code, err := execute(t, "configure", "--config", file, "--set", "lisen=x"); code != program.ExitUsage || !strings.Contains(err.Error(), "did you mean listen?") {
		t.Errorf("an unknown key: %d, %v", code, err)
	}
	if _, code, err := execute(t, "configure", "--config", file, "--external-url", "http://localhost:8800", "--no-check"); code != program.ExitFailed || !strings.Contains(err.Error(), "--allow-loopback") {
		t.Errorf("a URL on loopback: %d, %v", code, err)
	}
}
