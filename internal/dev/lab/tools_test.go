package lab

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
)

func pulumi(t *testing.T, tools Tools, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tools.Pulumi(), append(args, "--non-interactive", "--color=never")...)
	cmd.Dir, cmd.Env = dir, env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("pulumi %s: %v\n%s%s", strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	if strings.Contains(stderr.String(), "warning") {
		t.Errorf("pulumi %s warned:\n%s", strings.Join(args, " "), stderr.String())
	}
	return stdout.String()
}

// TestPulumiTools deploys a program with every resource type of the provider, with the stock CLI
// and its own file backend.
func TestPulumiTools(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs the real pulumi CLI")
	}
	tools := must.Get(PulumiTools(t.Context(), os.Stderr))(t)
	home, work, state := t.TempDir(), t.TempDir(), t.TempDir()
	must.OK(t, tools.Home(home))
	if err := tools.Home(home); err != nil {
		t.Fatalf("preparing an existing home: %v", err)
	}
	env := append(tools.Env(home, "file://"+state, ""), "PULUMI_CONFIG_PASSPHRASE=test")
	ledger, note := filepath.Join(work, "ledger"), filepath.Join(work, "note.txt")
	write := func(name, content string) {
		t.Helper()
		must.OK(t, os.WriteFile(filepath.Join(work, name), []byte(content), 0o600))
	}
	write("Pulumi.yaml", `name: tools
runtime: yaml
config:
  content: {type: string}
resources:
  random: {type: "lab:Random"}
  note: {type: "lab:File", properties: {path: note.txt, content: "${content}"}}
  count: {type: "lab:Record", properties: {ledger: ledger, trigger: "${content}"}}
  pause: {type: "lab:Sleep", properties: {seconds: 60, started: started, until: ledger}, options: {dependsOn: ["${count}"]}}
outputs: {size: "${note.size}", hex: "${random.hex}", password: "${random.password}"}
`)
	if got := strings.TrimSpace(pulumi(t, tools, work, env, "version")); got != PulumiVersion {
		t.Errorf("the CLI says it is %q, want %q", got, PulumiVersion)
	}
	pulumi(t, tools, work, env, "stack", "init", "dev")
	pulumi(t, tools, work, env, "config", "set", "content", "one")
	pulumi(t, tools, work, env, "up", "--yes", "--skip-preview")

	outputs := func() (out struct {
		Size          float64
		Hex, Password string
	},
	) {
		t.Helper()
		must.OK(t, json.Unmarshal([]byte(pulumi(t, tools, work, env, "stack", "output", "--json")), &out))
		return out
	}
	first := outputs()
	if first.Size != 3 || len(first.Hex) != 16 || first.Password != "[secret]" {
		t.Errorf("outputs are %+v, want size 3, 16 digits and a hidden password", first)
	}
	if got, _ := os.ReadFile(note); string(got) != "one" {
		t.Errorf("the file holds %q, want %q", got, "one")
	}

	pulumi(t, tools, work, env, "config", "set", "content", "three")
	pulumi(t, tools, work, env, "up", "--yes", "--skip-preview")
	if second := outputs(); second.Size != 5 || second.Hex != first.Hex {
		t.Errorf("outputs are %+v after an update, want size 5 and the same digits as %+v", second, first)
	}
	must.OK(t, os.Remove(note))
	if out := pulumi(t, tools, work, env, "refresh", "--preview-only"); !strings.Contains(out, "1 to delete") {
		t.Errorf("a refresh does not detect that the file is missing:\n%s", out)
	}
	pulumi(t, tools, work, env, "destroy", "--yes", "--skip-preview")

	var verbs []string
	lines := must.Get(os.ReadFile(ledger))(t)
	for line := range strings.Lines(string(lines)) {
		verbs = append(verbs, strings.Join(strings.Fields(line)[:2], " "))
	}
	if got, want := strings.Join(verbs, ", "), "create count, update count, delete count"; got != want {
		t.Errorf("the ledger says %q, want %q", got, want)
	}
}
