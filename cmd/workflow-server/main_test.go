package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/server"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/store"
)

func execute(t *testing.T, args ...string) (string, int, error) {
	t.Helper()
	root := newRootCommand("v9.8.7")
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	code, _ := result(err)
	return out.String(), code, err
}

func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "server.yaml")
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// tree returns all commands that are not hidden, including the completion command that cobra
// normally adds on execution.
func tree() []*cobra.Command {
	root := newRootCommand("v1")
	root.InitDefaultCompletionCmd()
	all := []*cobra.Command{root}
	for i := 0; i < len(all); i++ {
		for _, child := range all[i].Commands() {
			if child.IsAvailableCommand() {
				all = append(all, child)
			}
		}
	}
	return all
}

func TestEveryCommandExplainsItself(t *testing.T) {
	all := tree()
	if len(all) < 15 {
		t.Fatalf("found only %d commands", len(all))
	}
	for _, cmd := range all {
		switch {
		case cmd.Short == "" || strings.HasSuffix(cmd.Short, "."):
			t.Errorf("%s: Short is %q, want one line without a full stop", cmd.CommandPath(), cmd.Short)
		case cmd.Long == "" && cmd.Example == "":
			t.Errorf("%s has neither a long text nor an example", cmd.CommandPath())
		case cmd.Args == nil && !strings.Contains(cmd.CommandPath(), "completion"):
			t.Errorf("%s does not check its arguments", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Example) {
			if !strings.HasPrefix(strings.Replace(line, "  sudo ", "  ", 1), "  workflow-server ") {
				t.Errorf("%s: the example %q is not an indented command", cmd.CommandPath(), line)
			}
		}
	}
}

func TestVersion(t *testing.T) {
	for _, args := range []string{"version", "--version"} {
		if out, code, err := execute(t, args); !strings.Contains(out, "v9.8.7\n") || code != program.ExitOK {
			t.Errorf("%s: got %q, %d, %v", args, out, code, err)
		}
	}
	out, _, err := execute(t, "version", "--json")
	var about map[string]string
	if err != nil || json.Unmarshal([]byte(out), &about) != nil || about["version"] != "v9.8.7" || about["platform"] == "" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestMistakesHaveTheirExitCode(t *testing.T) {
	t.Setenv("WORKFLOW_SERVER_CONFIG", configFile(t, "data_dir: "+t.TempDir()+"\nlisten: 127.0.0.1:99999\n")) // serve ends at once
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"misspelled command", []string{"serv"}, program.ExitUsage, "did you mean serve?"},
		{"misspelled command of a group", []string{"oidc", "key"}, program.ExitUsage, "did you mean keys?"},
		{"misspelled flag", []string{"serve", "--lisen", "x"}, program.ExitUsage, "did you mean --listen?"},
		{"argument", []string{"serve", "now"}, program.ExitUsage, `"now"`},
		{"no argument", []string{"org", "create", "--admin", "ann"}, program.ExitUsage, "the name of the new organization"},
		{"missing flag", []string{"org", "create", "x"}, program.ExitUsage, "--admin is required"},
		{"bad value of a flag", []string{"token", "create", "--expires", "-1h"}, program.ExitUsage, "--expires must not be negative"},
		{"a secret as a flag", []string{"token", "create", "--metrics-token", "hunter2"}, program.ExitUsage, "--metrics-token-file FILE, WORKFLOW_SERVER_METRICS_TOKEN, or metrics_token in the configuration file"},
		{"a password as a flag", []string{"user", "create", "ann", "--database-password=hunter2"}, program.ExitUsage, "--database-password-file FILE"},
		{"a password in a flag", []string{"serve", "--database", "postgres://u:hunter2@h/d"}, program.ExitUsage, "database_password_file"},
		{"missing file", []string{"serve", "--config", "/does/not/exist.yaml"}, program.ExitUsage, "/does/not/exist.yaml"},
		{"unknown key", []string{"serve", "--config", configFile(t, "lisen: hunter2\n")}, program.ExitUsage, "did you mean listen?"},
		{"bad value", []string{"token", "create", "--config", configFile(t, "log_level: hunter2\n")}, program.ExitUsage, "log_level"},
		{"no database", []string{"token", "create"}, program.ExitNone, "does not exist"},
		{"no database for a list", []string{"oidc", "keys", "--json"}, program.ExitNone, "does not exist"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, code, err := execute(t, tt.args...)
			if code != tt.code || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %d, %v; want %d and %q", code, err, tt.code, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Error("the error shows the value")
			}
		})
	}
}

func TestConfigShowHidesSecrets(t *testing.T) {
	path := configFile(t, "metrics_token: hunter2hunter2\ndatabase: postgres://u:hunter2@h/d\njob_lost: 7m\n")
	for _, args := range [][]string{{"config", "show", "--config", path}, {"config", "show", "--json", "--config", path}} {
		out, code, err := execute(t, args...)
		if code != program.ExitOK || !strings.Contains(out, "7m") || !strings.Contains(out, path+":3") || !strings.Contains(out, "postgres://u:REDACTED@h/d") {
			t.Errorf("%v: %d, %v\n%s", args, code, err, out)
		}
		if strings.Contains(out, "hunter2") {
			t.Error("a secret shows")
		}
	}
}

func TestConfigCheck(t *testing.T) {
	path := configFile(t, "listen: 127.0.0.1:1\n")
	out, code, err := execute(t, "config", "check", "--config", path)
	if want := "The configuration is valid (" + path + ").\n"; code != program.ExitOK || out != want {
		t.Errorf("got %q, %d, %v; want %q", out, code, err, want)
	}
	t.Setenv("WORKFLOW_SERVER_LISTN", "x")
	if out, _, err := execute(t, "config", "check", "--config", path); err != nil || !strings.Contains(out, "warning: the variable WORKFLOW_SERVER_LISTN") {
		t.Errorf("got %q, %v", out, err)
	}
	out, _, err = execute(t, "config", "check", "--json", "--config", path)
	var report struct {
		File     string
		Warnings []string
	}
	if err != nil || json.Unmarshal([]byte(out), &report) != nil || report.File != path || len(report.Warnings) != 1 {
		t.Errorf("got %q, %v", out, err)
	}
	for text, want := range map[string]string{
		"sign_in_file: " + configFile(t, "providers: []\n") + "\n": "providers: has 0 entries",
		"sign_in_file: /absent\n":                                  "/absent",
		"master_key_file: /absent\n":                               "/absent",
		"runners_target: process\nrunners: 1\n":                    "i-trust-every-repository",
	} {
		if _, code, err := execute(t, "config", "check", "--config", configFile(t, text)); code != program.ExitUsage || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %d, %v; want %q", text, code, err, want)
		}
	}
}

// TestConfigCheckForTheService checks that root learns which files the server's user cannot read.
func TestConfigCheckForTheService(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	data, secret := t.TempDir(), configFile(t, "x")
	must.OK(t, os.Chown(data, 12345, 12345))
	providers := configFile(t, "providers: [{id: corp, issuer: https://login.example.com, client_id: x, allow_everyone: true, client_secret_file: "+secret+"}]\n")
	_, code, err := execute(t, "config", "check", "--config", configFile(t, "data_dir: "+data+"\nsign_in_file: "+providers+"\n"))
	if want := "client_secret_file of corp: " + secret; code != program.ExitUsage || err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "user 12345") {
		t.Errorf("got %d, %v; want %q", code, err, want)
	}
}

// TestLists checks the lists of a server's database as text and as JSON.
func TestLists(t *testing.T) {
	path := configFile(t, "data_dir: "+t.TempDir()+"\nlisten: 127.0.0.1:0\n")
	cfg := must.Get(config.Load(config.LoadOptions{Path: path, UID: os.Geteuid(), Cwd: t.TempDir()}))(t)
	db := must.Get(server.OpenDatabase(t.Context(), cfg, newLog(cfg, &bytes.Buffer{})))(t)
	must.OK(t, db.Close())
	if out, code, err := execute(t, "oidc", "rotate", "--config", path); code != program.ExitOK || !strings.Contains(out, "\nKEY ") {
		t.Fatalf("got %q, %d, %v", out, code, err)
	}
	out, _, err := execute(t, "oidc", "keys", "--json", "--config", path)
	var keys []struct{ ID, Status, SignsFrom string }
	if err != nil || json.Unmarshal([]byte(out), &keys) != nil || len(keys) == 0 || keys[0].ID == "" || keys[0].Status == "" || keys[0].SignsFrom == "" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestHelp(t *testing.T) {
	out, _, err := execute(t, "serve", "--help")
	for _, want := range []string{"--external-url", "[WORKFLOW_SERVER_LOG_LEVEL]", "(one of: error, warning, info, debug)", "--metrics-token-file", "--config"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("the help lacks %s, %v", want, err)
		}
	}
	if strings.Contains(out, "--metrics-token string") {
		t.Error("a secret is a flag")
	}
	if out, _, err := execute(t, "version", "--help"); err != nil || strings.Contains(out, "--config") {
		t.Errorf("version shows --config: %v", err)
	}
	if out, _, err := execute(t, "token", "create", "--help"); err != nil || strings.Contains(out, "--runners") || !strings.Contains(out, "--data-dir") {
		t.Errorf("the settings of token create are wrong: %v\n%s", err, out)
	}
}

func TestManual(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	dir := filepath.Join(t.TempDir(), "man")
	if _, code, err := execute(t, "man", "--dir", dir); code != program.ExitOK {
		t.Fatal(err)
	}
	entries := must.Get(os.ReadDir(dir))(t)
	all := tree()
	for _, cmd := range all {
		page := string(must.Get(os.ReadFile(filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1")))(t))
		if !strings.Contains(page, strings.ReplaceAll(cmd.Short, "-", `\-`)) || !strings.Contains(page, `"Nov 2023"`) {
			t.Errorf("the page of %s is %q", cmd.CommandPath(), page)
		}
		if cmd.Name() == "serve" && !strings.Contains(page, "WORKFLOW_SERVER_LISTEN") {
			t.Error("the page of serve lacks the settings")
		}
	}
	if len(entries) != len(all) {
		t.Errorf("%d pages for %d commands", len(entries), len(all))
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		return // the checks above did not need it
	}
	for _, entry := range entries {
		out, err := exec.CommandContext(t.Context(), groff, "-man", "-Tutf8", "-ww", "-z", filepath.Join(dir, entry.Name())).CombinedOutput()
		if err != nil || len(bytes.TrimSpace(out)) > 0 {
			t.Errorf("%s: %v\n%s", entry.Name(), err, out)
		}
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out, code, err := execute(t, "completion", shell); code != program.ExitOK || !strings.Contains(out, "workflow-server") {
			t.Errorf("%s: %d, %v", shell, code, err)
		}
	}
	for args, want := range map[string]string{
		"":                              "serve\tRun the server",
		"serve --runners-target ":       "docker\nprocess\n:4\n",
		"serve --log-level ":            "error\nwarning\ninfo\ndebug\n:4\n",
		"token create --data-dir ":      ":16\n",
		"serve --config ":               "yaml\nyml\n:8\n",
		"serve --metrics-token-file ":   ":0\n",
		"oidc ":                         "keys\tList the published keys",
		"admin sign-in --external-url ": ":4\n",
		"configure --client-address ":   "connection\nx-forwarded-for\nforwarded\nproxy-protocol\n:4\n",
		"configure --tls-key-file ":     ":0\n",
	} {
		words := append([]string{cobra.ShellCompRequestCmd}, strings.Split(args, " ")...)
		if out, _, err := execute(t, words...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%q is completed to %q, want %q, %v", args, out, want, err)
		}
	}
}

// TestExitCodeOfAnOldProgram checks the code after which the service is not restarted.
func TestExitCodeOfAnOldProgram(t *testing.T) {
	code, line := result(fmt.Errorf("preparing the database: %w", &store.OldProgramError{Oldest: "v1.2.0"}))
	if code != exitOld || !strings.Contains(line, "v1.2.0") {
		t.Errorf("got %d, %q", code, line)
	}
	dir := filepath.Join(t.TempDir(), "files")
	if _, _, err := execute(t, "service", "files", "--dir", dir); err != nil {
		t.Fatal(err)
	}
	unit := string(must.Get(os.ReadFile(filepath.Join(dir, "workflow-server.service")))(t))
	if want := fmt.Sprintf("\nRestartPreventExitStatus=%d %d\n", program.ExitUsage, exitOld); !strings.Contains(unit, want) {
		t.Errorf("the unit lacks %q", want)
	}
}
