package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/agent/config"
)

// asMain is the variable that makes the test binary run as the agent.
const asMain = "TEST_AGENT_MAIN"

const goodToken = "pul-0123456789good"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
	}
	os.Exit(m.Run())
}

func execute(t *testing.T, args ...string) (string, int, error) {
	t.Helper()
	root := newRootCommand("v9.8.7")
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), exitCode(err), err
}

func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestVersion(t *testing.T) {
	if out, code, err := execute(t, "version"); out != "v9.8.7\n" || code != program.ExitOK {
		t.Errorf("got %q, %d, %v", out, code, err)
	}
	out, _, err := execute(t, "version", "--json")
	var about map[string]string
	if err != nil || json.Unmarshal([]byte(out), &about) != nil || about["version"] != "v9.8.7" || about["platform"] == "" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestMistakesHaveTheirExitCode(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown command", []string{"walk"}, `"walk"`},
		{"misspelled command", []string{"statsu"}, `"statsu" is unknown to customer-managed-workflow-agent; did you mean status?`},
		{"unknown flag", []string{"run", "--fast"}, "--fast"},
		{"misspelled flag", []string{"drain", "--wiat"}, "did you mean --wait?"},
		{"argument", []string{"run", "now"}, `"now"`},
		{"a token as an argument", []string{"configure", "--token", "x"}, "--token-file FILE"},
		{"missing file", []string{"run", "--config", "/does/not/exist.yaml"}, "/does/not/exist.yaml"},
		{"unknown key", []string{"run", "--config", configFile(t, "token: pul-secret-token\npolling: 1m\n")}, "polling"},
		{"bad value", []string{"run", "--config", configFile(t, "token: pul-secret-token\npolling_interval: soon\n")}, "polling_interval"},
		{"no token", []string{"run", "--config", configFile(t, "deploy_target: process\n")}, "token"},
		{"variable", []string{"service", "install", "--env", "1x=y"}, "1x"},
		{"name", []string{"service", "status", "--name", "a b"}, "a b"},
		{"kubernetes", []string{"run", "--config", configFile(t, "token: pul-secret-token\ndeploy_target: kubernetes\n")}, "kubernetes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("PULUMI_AGENT_TOKEN", "")
			_, code, err := execute(t, tc.args...)
			if code != program.ExitUsage || err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %d, %v; want %d and %q", code, err, program.ExitUsage, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "pul-secret-token") {
				t.Error("the error shows the token")
			}
		})
	}
}

func TestConfigureTakesItsFlags(t *testing.T) {
	t.Setenv("PULUMI_AGENT_TOKEN", "")
	file, token := filepath.Join(t.TempDir(), "agent.yaml"), filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(goodToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code, err := execute(
		t, "configure", "--config", file, "--service-url", "https://pulumi.example.com", "--token-file", token,
		"--deploy-target", "process", "--set", "max_concurrent_jobs=4", "--no-check",
	)
	if code != program.ExitOK || !strings.Contains(out, "Wrote "+file) {
		t.Fatalf("%d, %v: %s", code, err, out)
	}
	c, err := config.Load(config.LoadOptions{Path: file, UID: os.Geteuid()})
	if err != nil || c.Token.Reveal() != goodToken || c.ServiceURL != "https://pulumi.example.com" || c.DeployTarget != config.TargetProcess || c.Agent.MaxConcurrentJobs != 4 {
		t.Errorf("%v: %+v", err, c)
	}
}

func TestConfigCheck(t *testing.T) {
	t.Setenv("PULUMI_AGENT_TOKEN", "")
	path := configFile(t, "token: pul-secret-token\ndeploy_target: process\n")
	out, code, err := execute(t, "config", "check", "--config", path)
	if want := "The configuration is valid (" + path + ").\n"; code != program.ExitOK || out != want {
		t.Errorf("got %q, %d, %v; want %q", out, code, err, want)
	}
	if _, code, err := execute(t, "config", "check", "--config", configFile(t, "deploy_target: process\n")); code != program.ExitUsage || err == nil || !strings.Contains(err.Error(), "token: is required") {
		t.Errorf("without a token: %d, %v", code, err)
	}
}

func TestConfigShowHidesSecrets(t *testing.T) {
	path := configFile(t, "token: pul-secret-token\npolling_interval: 7s\n")
	for _, args := range [][]string{{"config", "show", "--config", path}, {"config", "show", "--json", "--config", path}} {
		out, code, err := execute(t, args...)
		if code != program.ExitOK || !strings.Contains(out, "7s") || !strings.Contains(out, path+":2") {
			t.Errorf("%v: %d, %v\n%s", args, code, err, out)
		}
		if strings.Contains(out, "pul-secret-token") {
			t.Error("the token shows")
		}
	}
}

// TestConfigPod checks that config pod prints a pod with the template, and rejects a bad template.
func TestConfigPod(t *testing.T) {
	t.Setenv("PULUMI_AGENT_IMAGE", "registry.example.com/agent:v1.2.3")
	t.Setenv("PULUMI_AGENT_POD_TEMPLATE", "")
	template := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(template, []byte("spec:\n  hostNetwork: true\n  nodeSelector: {pool: deployments}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := configFile(t, "token: pul-secret-token\ndeploy_target: kubernetes\npod_template_file: "+template+"\n")
	out, code, err := execute(t, "config", "pod", "--image", "registry.example.com/job:1", "--config", path)
	for _, want := range []string{"kind: Pod", "image: registry.example.com/job:1", "image: registry.example.com/agent:v1.2.3", "pool: deployments", "note: the pod template sets hostNetwork"} {
		if code != program.ExitOK || !strings.Contains(out, want) {
			t.Errorf("%d, %v: no %q in\n%s", code, err, want, out)
		}
	}
	t.Setenv("PULUMI_AGENT_POD_TEMPLATE", "spec:\n  hostnetwork: true\n")
	if _, code, err = execute(t, "config", "pod", "--config", path); code != program.ExitUsage || err == nil || !strings.Contains(err.Error(), "env PULUMI_AGENT_POD_TEMPLATE:2: spec.hostnetwork") {
		t.Errorf("a bad template: %d, %v", code, err)
	}
}

func TestHelpNamesEverySetting(t *testing.T) {
	out, _, err := execute(t, "run", "--help")
	for _, key := range []string{"token", "polling_interval", "PULUMI_AGENT_STATE_DIRECTORY", "allowed_images"} {
		if err != nil || !strings.Contains(out, key) {
			t.Errorf("the help does not name %s, %v", key, err)
		}
	}
}
