package faults

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// TestEngineShowsNoSecret searches all data of a running container's job that is visible on the
// engine and on the host.
func TestEngineShowsNoSecret(t *testing.T) {
	const registryUser, registryPassword, forwarded, setting = "puller", "registry-password-8484", "forwarded-key-6262", "settings-token-7373"
	ctx := t.Context()
	if reason, ok := lab.PrivateEngineAvailable(); !ok {
		t.Skip(reason)
	}
	at := engineWithRegistry(t, faultRow{pulled: true}, lab.RegistryOptions{Username: registryUser, Password: registryPassword})
	at.settings["env_forward_allowlist"] = "CLOUD_KEY"
	at.env = append(at.env, "CLOUD_KEY="+forwarded)
	since := time.Now()
	a := newArena(t, faultRow{phase: "running", fault: "none", want: kept}, at)
	settings := map[string]any{
		"operationContext": map[string]any{
			"environmentVariables": map[string]any{"API_TOKEN": map[string]string{"secret": setting}},
		},
		"executorContext": map[string]any{"executorImage": map[string]any{
			"reference": at.image,
			"credentials": map[string]any{
				"username": registryUser, "password": map[string]string{"secret": registryPassword},
			},
		}},
	}
	must.OK(t, a.Server.Call(ctx, http.MethodPost, a.stack.Path("settings"), settings, nil))
	a.running()

	secrets := append(a.proxy.jobTokens(), a.Pool.Token, registryPassword, forwarded, setting)
	if len(secrets) != 5 {
		t.Fatalf("%d secrets, want the token of one job and four more", len(secrets))
	}
	look := func(e lab.Exhibit, secret string) {
		for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte(registryUser + ":" + secret))} {
			if bytes.Contains(e.Content, []byte(form)) {
				t.Errorf("%s holds the secret %q", e.Where, secret)
			}
		}
	}
	visible := must.Get(at.engine.Visible(ctx, "workflowagent.deployment_id="+a.job.ID, since))(t)
	wants := map[string]string{ // texts that prove the data was complete
		"docker inspect": "workflow-runner", "docker top": "workflow-runner", "docker logs": "line-1\n",
		"docker volume inspect": "workflowagent.job", "docker events": "\"start\"",
	}
	for _, e := range visible {
		if bytes.Contains(e.Content, []byte(wants[e.Where])) {
			delete(wants, e.Where)
		}
		for _, secret := range secrets {
			look(e, secret)
		}
	}
	if len(wants) > 0 {
		t.Errorf("these showed nothing, so they prove nothing: %v", wants)
	}

	runner := a.runner()
	inJob, others := 0, 0
	for _, e := range lab.Processes() {
		_, environ := strings.CutSuffix(e.Where, "/environ")
		for _, secret := range secrets {
			switch {
			case environ && descends(e.Pid, runner):
				inJob++ // a job sees its own
			case environ && e.Pid == a.agent.Process.Pid() && (secret == a.Pool.Token || secret == forwarded):
				// its own configuration, as this test gave it
			default:
				others++
				look(e, secret)
			}
		}
	}
	if inJob == 0 || others == 0 {
		t.Errorf("%d searches inside the job and %d outside: this proves nothing", inJob, others)
	}
	// The runner's own arguments and environment must hold no secret either.
	for _, name := range []string{"cmdline", "environ"} {
		content := harness.Read(t, filepath.Join("/proc", strconv.Itoa(runner), name))
		for _, secret := range secrets {
			look(lab.Exhibit{Where: "the runner's " + name, Content: content}, secret)
		}
	}
	a.resume()
	a.check()
}

func descends(pid, from int) bool {
	for range 50 {
		if pid == from {
			return true
		}
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		_, rest, ok := strings.Cut(string(status), ") ")
		fields := strings.Fields(rest)
		if err != nil || !ok || len(fields) < 2 {
			return false
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil || pid < 2 {
			return false
		}
	}
	return false
}
