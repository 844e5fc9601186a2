package faults

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// TestEngineReportsWhyAJobDidNotStart covers jobs that the host's settings or an image registry
// prevent: the API reports the reason, and the deployment's log explains it in one line.
func TestEngineReportsWhyAJobDidNotStart(t *testing.T) {
	if reason, ok := lab.PrivateEngineAvailable(); !ok {
		t.Skip(reason)
	}
	const user, password = "puller", "registry-password-8484"
	at := engineWithRegistry(t, faultRow{pulled: true}, lab.RegistryOptions{Username: user, Password: password})
	credentials := func(password string) map[string]any {
		return map[string]any{
			"reference": at.image, "credentials": map[string]any{"username": user, "password": map[string]string{"secret": password}},
		}
	}
	right := credentials(password)
	for _, tc := range []struct {
		name           string
		image          any
		settings       map[string]string
		env            string
		status, reason string
		line           []string // texts in one line of the log
	}{
		{name: "allowed image and repository", image: right, settings: map[string]string{"allowed_images": "REGISTRY/team/*", "allowed_repositories": "GIT/box"}, status: "succeeded"},
		{
			name: "another image", image: right, settings: map[string]string{"allowed_images": "pulumi/*"},
			status: "failed", reason: "refused", line: []string{at.image, "allowed_images"},
		},
		{
			name: "another repository", image: right, settings: map[string]string{"allowed_repositories": "github.com/acme/*"},
			status: "failed", reason: "refused", line: []string{"/box", "allowed_repositories"},
		},
		{
			name: "wrong password", image: credentials("wrong-password-9191"),
			status: "failed", reason: "image", line: []string{at.image, "rejects the agent", "the job's registry credentials"},
		},
		{
			name: "no password", image: at.image,
			status: "failed", reason: "image", line: []string{at.image, "rejects the agent", "no credentials"},
		},
		{
			name: "missing tag", image: map[string]any{
				"reference": at.image + "0", "credentials": right["credentials"],
			},
			status: "failed", reason: "image", line: []string{at.image + "0", "does not have it"},
		},
		{
			name: "override", image: "nobody/has-this:ever", env: "PULUMI_DEPLOY_OVERRIDE_IMAGE_REFERENCE=" + at.image,
			settings: map[string]string{"pull_image": "false"}, // pulled by the rows above
			status:   "succeeded", line: []string{"Created the container", at.image},
		},
		{
			name: "override that is not allowed", image: right, env: "PULUMI_DEPLOY_OVERRIDE_IMAGE_REFERENCE=nobody/has-this:ever",
			settings: map[string]string{"allowed_images": "REGISTRY/team/*"},
			status:   "failed", reason: "refused", line: []string{"nobody/has-this:ever", "allowed_images"},
		},
	} {
		t.Run(strings.ReplaceAll(tc.name, " ", "-"), func(t *testing.T) {
			ctx := t.Context()
			w := harness.StartSite(t, ownLoopback())
			settings := maps.Clone(at.settings)
			maps.Copy(settings, tc.settings)
			hosts := strings.NewReplacer("REGISTRY", at.registry.Host, "GIT", strings.TrimPrefix(w.Git.URL, "http://"))
			for key, value := range settings {
				settings[key] = hosts.Replace(value)
			}
			env := append([]string{tc.env}, at.env...)
			agent := must.Get(w.StartAgent(ctx, "docker", settings, env...))(t)
			repo := w.Repo(ctx, t)
			s := w.NewStack(ctx, t, "box", "dev", "to/be:replaced", at.variables)
			must.OK(t, w.Server.Call(ctx, http.MethodPost, s.Path("settings"), map[string]any{"executorContext": map[string]any{"executorImage": tc.image}}, nil))
			d := s.Finish(ctx, t, s.Deploy(ctx, t, "update", repo.URL))
			log := s.Log(ctx, t, d)
			if d.Status != tc.status || d.Reason != tc.reason {
				t.Fatalf("it is %+v, want %s (%s)\n%s", d, tc.status, tc.reason, log)
			}
			said := len(tc.line) == 0
			for line := range strings.Lines(log) {
				all := true
				for _, words := range tc.line {
					all = all && strings.Contains(line, words)
				}
				said = said || all
			}
			if !said {
				t.Errorf("no line of the log contains %q:\n%s", tc.line, log)
			}
			written := harness.Read(t, agent.LogFile)
			for _, secret := range []string{password, "wrong-password-9191"} {
				if strings.Contains(log+d.Message+string(written), secret) {
					t.Error("a password is shown")
				}
			}
			if tc.status == "failed" {
				t.Log(d.Message)
			}
		})
	}
}
