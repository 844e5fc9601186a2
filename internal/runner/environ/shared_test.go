package environ_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/protocol"
	"workflowagent/internal/runner/environ"
	"workflowagent/internal/workflow"
)

// TestShare checks what the variables of environments replace, and what replaces them.
func TestShare(t *testing.T) {
	job := t.TempDir()
	launch := &protocol.Launch{CACertPEM: "authorities", ForwardedEnv: map[string]string{"FORWARDED": "agent"}}
	d := &workflow.JobDefinition{Env: map[string]string{"SET": "settings", "https_proxy": "http://settings"}, Deployment: &workflow.Deployment{Stack: "dev"}}
	e := must.Get(environ.New(job, filepath.Join(job, "PULUMI_ENV"), []string{"IMAGE=image", "PATH=" + os.Getenv("PATH")}, launch, d))(t)
	notices := e.Share(map[string]string{
		"IMAGE": "shared", "SET": "shared", "HTTPS_PROXY": "http://shared", "FORWARDED": "shared", "CLOUD": "shared", "PULUMI_CI_STACK": "shared",
		"SSL_CERT_FILE": "/shared.pem", "http_proxy": "http://shared", "PASSED": "shared",
	})
	if text := strings.Join(notices, "\n"); !strings.HasSuffix(text, ": FORWARDED, HTTPS_PROXY, PULUMI_CI_STACK, SET, SSL_CERT_FILE") {
		t.Errorf("the notices are %q", text)
	}
	must.OK(t, os.WriteFile(e.Base().Vars["PULUMI_ENV"], []byte("PASSED=command\n"), 0o600))
	got, _, _ := e.ForStep(map[string]string{"CLOUD": "cloud", "OTHER_CLOUD": "cloud"})
	for _, want := range []string{
		"IMAGE=shared", "SET=settings", "HTTPS_PROXY=http://settings", "https_proxy=http://settings", "FORWARDED=agent", "CLOUD=shared", "OTHER_CLOUD=cloud",
		"PULUMI_CI_STACK=dev", "HTTP_PROXY=http://shared", "PASSED=command", "SSL_CERT_FILE=" + filepath.Join(job, "ca-certificates.pem"),
	} {
		if !slices.Contains(got, want) {
			t.Errorf("the environment lacks %s: %q", want, got)
		}
	}
}
