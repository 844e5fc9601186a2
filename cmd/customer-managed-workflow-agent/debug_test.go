package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/protocol"
)

// standIn installs a runner that records its input and environment, prints its arguments and exits
// with code 7.
func standIn(t *testing.T) (config, notes string) {
	t.Helper()
	dir, notes := t.TempDir(), t.TempDir()
	script := "#!/bin/sh\ncat >" + notes + "/stdin\nenv >" + notes + "/env\necho \"$@\"\nexit 7\n"
	if err := os.WriteFile(filepath.Join(dir, "workflow-runner"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return configFile(t, "token: pul-secret-token\nworking_directory: "+dir+"\nenv_forward_allowlist: [CLOUD_KEY]\n"), notes
}

func TestDebugRunnerRunsTheRunner(t *testing.T) {
	config, notes := standIn(t)
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("CLOUD_KEY", "forwarded-key")
	t.Setenv("PULUMI_AGENT_STATE_DIRECTORY", t.TempDir())
	out, code, err := execute(t, "debug", "workflow-runner", "--config", config, "--job", "../../examples/debug-job.json")
	if code != 7 || !strings.HasPrefix(out, "run --job-dir "+temp) {
		t.Errorf("%d, %v: %s", code, err, out)
	}
	data, err := os.ReadFile(filepath.Join(notes, "stdin"))
	if err != nil {
		t.Fatal(err)
	}
	var launch protocol.Launch
	if err := json.Unmarshal(data, &launch); err != nil {
		t.Fatal(err)
	}
	if !launch.Offline || !launch.EchoLog || launch.JobToken != "" || len(launch.Definition.Steps) != 3 || launch.ForwardedEnv["CLOUD_KEY"] != "forwarded-key" {
		t.Errorf("the launch is %+v", launch)
	}
	env, err := os.ReadFile(filepath.Join(notes, "env"))
	if err != nil || strings.Contains(string(env), "PULUMI_AGENT_") || strings.Contains(string(env), "forwarded-key") || strings.Contains(string(data), "pul-secret-token") {
		t.Errorf("the runner gets too much: %s, %v", env, err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if out, code, _ := execute(t, "debug", "workflow-runner", "--config", config, "--keep", "--job", "../../examples/debug-job.json"); code != 7 || !strings.Contains(out, "is left in "+temp) {
		t.Errorf("--keep: %d: %s", code, out)
	}
}

func TestDebugRunnerRefusesMistakes(t *testing.T) {
	config, notes := standIn(t)
	broken := filepath.Join(t.TempDir(), "broken.json")
	if err := os.WriteFile(broken, []byte(`{"env": {"KEY": "secret-in-it"`), 0o600); err != nil {
		t.Fatal(err)
	}
	elsewhere := configFile(t, "working_directory: "+t.TempDir()+"\n")
	for _, tt := range []struct {
		name, want string
		args       []string
	}{
		{"no file", "--job is required", []string{"--config", config}},
		{"missing file", "/does/not/exist", []string{"--config", config, "--job", "/does/not/exist"}},
		{"broken file", "job definition", []string{"--config", config, "--job", broken}},
		{"no runner", "workflow-runner is not in", []string{"--config", elsewhere, "--job", "../../examples/debug-job.json"}},
	} {
		_, code, err := execute(t, append([]string{"debug", "workflow-runner"}, tt.args...)...)
		if code != program.ExitUsage || err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret-in-it") {
			t.Errorf("%s: %d, %v", tt.name, code, err)
		}
	}
	if _, err := os.Stat(filepath.Join(notes, "stdin")); err == nil {
		t.Error("a refused command started the runner")
	}
}
