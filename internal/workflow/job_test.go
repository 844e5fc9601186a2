package workflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseJobDefinition(t *testing.T) {
	job, err := ParseJobDefinition([]byte(`{
		"os": "linux", "architecture": "amd64", "image": {"reference": "pulumi/pulumi"}, "shell": "bash",
		"timeout": "1h30m", "env": {"A": "b"}, "unknown": {"is": "ignored"},
		"steps": [{"name": "Setup", "run": ""}, {"name": "pulumi update", "run": "workflow-runner pulumi update", "timeout": ""}]
	}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := time.Duration(job.Timeout); got != 90*time.Minute {
		t.Errorf("timeout is %s", got)
	}
	if job.Steps[1].Timeout != 0 {
		t.Errorf("an empty timeout became %v", job.Steps[1].Timeout)
	}
}

func TestParseJobDefinitionRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"not JSON":        {`{`, "reading the job definition"},
		"env with object": {`{"env": {"A": {}}, "steps": [{}, {}]}`, "reading the job definition"},
		"no steps":        {`{"steps": []}`, "0 steps"},
		"only set-up":     {`{"steps": [{"name": "Setup"}]}`, "1 steps"},
		"windows":         {`{"os": "windows", "steps": [{}, {}]}`, `"windows"`},
		"bad timeout":     {`{"timeout": "soon", "steps": [{}, {}]}`, `"soon"`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseJobDefinition([]byte(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestSecretsNamesEverySecret(t *testing.T) {
	job := JobDefinition{
		Env:       map[string]string{"TOKEN": "in-env", "PLAIN": "plain", "EMPTY": "", "PULUMI_ACCESS_TOKEN": "job-token"},
		SecretEnv: []string{"TOKEN", "EMPTY", "MISSING"},
		Image:     &Image{Credentials: &ImageCredentials{Username: "user", Password: "registry-password"}},
		Deployment: &Deployment{Source: &Source{Git: &GitSource{Auth: &GitAuth{
			AccessToken: "git-token", SSHPrivateKey: "ssh-key", SSHPassphrase: "ssh-phrase", UserName: "me", Password: "git-password",
		}}}},
	}
	want := []string{"in-env", "job-token", "registry-password", "git-token", "ssh-key", "ssh-phrase", "git-password"}
	var got []string
	for _, secret := range job.Secrets() {
		got = append(got, secret.Value())
		if text := fmt.Sprintf("%v %+v %#v %s %q %d %x", secret, secret, secret, secret, secret, secret, []any{secret}); strings.Contains(text, secret.Value()) {
			t.Errorf("%s prints its value: %s", secret.Name, text)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := new(JobDefinition).Secrets(); got != nil {
		t.Errorf("an empty definition has secrets %q", got)
	}
}

func TestDurationTravelsAsText(t *testing.T) {
	data, err := json.Marshal(Step{Name: "s", Timeout: Duration(90 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"name":"s","run":"","timeout":"1m30s"}`; string(data) != want {
		t.Errorf("got %s, want %s", data, want)
	}
}

func TestParseOperation(t *testing.T) {
	for _, op := range Operations() {
		if got, err := ParseOperation(string(op)); err != nil || got != op {
			t.Errorf("%s: got %s, %v", op, got, err)
		}
	}
	if _, err := ParseOperation("up"); err == nil || !strings.Contains(err.Error(), "remediate-drift") {
		t.Errorf("the error does not list the possible operations: %v", err)
	}
}
