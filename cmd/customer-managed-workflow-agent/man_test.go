package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/cmd/internal/program"
	"workflowagent/internal/agent/config"
)

// wholeTree returns the root command, including the completion command that cobra normally adds on
// execution.
func wholeTree() *cobra.Command {
	root := newRootCommand("v1")
	root.InitDefaultCompletionCmd()
	return root
}

func everyCommand(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			everyCommand(child, f)
		}
	}
}

func TestEveryCommandExplainsItself(t *testing.T) {
	everyCommand(wholeTree(), func(cmd *cobra.Command) {
		switch {
		case cmd.Short == "" || strings.HasSuffix(cmd.Short, "."):
			t.Errorf("%s: Short is %q, want one line without a full stop", cmd.CommandPath(), cmd.Short)
		case cmd.Long == "" && cmd.Example == "":
			t.Errorf("%s has neither a long text nor an example", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Example) {
			if !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: the example %q is not indented", cmd.CommandPath(), line)
			}
		}
	})
}

// TestHelpShowsOwnFlags checks that a command's help lists no flags of other commands.
func TestHelpShowsOwnFlags(t *testing.T) {
	for command, want := range map[string]bool{"version": false, "service stop": false, "service install": true, "doctor": true, "": true} {
		out, code, err := execute(t, append(strings.Fields(command), "--help")...)
		if err != nil || code != program.ExitOK || strings.Contains(out, "--config") != want {
			t.Errorf("%q shows --config: %v (%v)\n%s", command, !want, err, out)
		}
	}
}

func manualPages(t *testing.T) (dir string, pages map[string]string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "man")
	if _, code, err := execute(t, "man", "--dir", dir); code != program.ExitOK {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	pages = map[string]string{}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		pages[strings.TrimSuffix(entry.Name(), ".1")] = string(data)
	}
	return dir, pages
}

func TestManualHasAPageForEveryCommand(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	_, pages := manualPages(t)
	count := 0
	everyCommand(wholeTree(), func(cmd *cobra.Command) {
		count++
		page := pages[strings.ReplaceAll(cmd.CommandPath(), " ", "-")]
		if !strings.Contains(page, strings.ReplaceAll(cmd.Short, "-", `\-`)) || !strings.Contains(page, `"Nov 2023"`) {
			t.Errorf("the page of %s is %q", cmd.CommandPath(), page)
		}
	})
	if count != len(pages) {
		t.Errorf("%d pages for %d commands", len(pages), count)
	}
	for name, want := range map[string]string{
		"customer-managed-workflow-agent-run":   "polling_interval",
		"customer-managed-workflow-agent-drain": `\fB--timeout\fP`,
		"customer-managed-workflow-agent":       "customer-managed-workflow-agent-status(1)",
	} {
		if !strings.Contains(strings.ReplaceAll(pages[name], `\-`, "-"), want) {
			t.Errorf("the page %s lacks %q", name, want)
		}
	}
	if _, again := manualPages(t); !maps.Equal(pages, again) {
		t.Error("the pages of two runs differ")
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if _, code, err := execute(t, "man", "--dir", t.TempDir()); code != program.ExitUsage {
		t.Errorf("a wrong epoch: %d, %v", code, err)
	}
	if _, code, err := execute(t, "man"); code != program.ExitUsage {
		t.Errorf("no directory: %d, %v", code, err)
	}
}

// TestManualIsWellFormed checks that the installed man page formatters report no errors.
func TestManualIsWellFormed(t *testing.T) {
	dir, pages := manualPages(t)
	var checks [][]string
	if path, err := exec.LookPath("mandoc"); err == nil {
		checks = append(checks, []string{path, "-T", "lint", "-W", "warning"})
	}
	if path, err := exec.LookPath("groff"); err == nil {
		checks = append(checks, []string{path, "-man", "-Tutf8", "-ww", "-z"})
	}
	if len(checks) == 0 {
		t.Skip("neither mandoc nor groff is installed")
	}
	for _, check := range checks {
		for name := range pages {
			cmd := exec.CommandContext(t.Context(), check[0], append(check[1:], filepath.Join(dir, name+".1"))...)
			out, err := cmd.CombinedOutput()
			if err != nil || len(bytes.TrimSpace(out)) > 0 {
				t.Errorf("%s about %s: %v\n%s", check[0], name, err, out)
			}
		}
	}
}

func complete(t *testing.T, args ...string) string {
	t.Helper()
	out, code, err := execute(t, append([]string{cobra.ShellCompRequestCmd}, args...)...)
	if code != program.ExitOK {
		t.Fatal(err)
	}
	return out
}

func TestCompletion(t *testing.T) {
	agents(t, "0", "2")
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{""}, []string{"status\tShow the running agents", "drain\tFinish the running jobs", "completion\t"}},
		{[]string{"drain", "--"}, []string{"--wait\twait until", "--timeout\t"}},
		{[]string{"drain", "--instance", ""}, []string{"0\tready, process 42", "2\tready, process 42", ":4\n"}},
		{[]string{"run", "--config", ""}, []string{"yaml\n", "yml\n", ":8\n"}},
		{[]string{"debug", "workflow-runner", "--job", ""}, []string{"json\n", ":8\n"}},
		{[]string{"status", ""}, []string{":4\n"}},
	} {
		out := complete(t, tt.args...)
		for _, want := range tt.want {
			if !strings.Contains(out, want) {
				t.Errorf("%q is completed to %q, want %q", tt.args, out, want)
			}
		}
	}
	if out := complete(t, ""); strings.Contains(out, "man\t") {
		t.Error("a hidden command is offered")
	}
}

// TestCompletionOfSettings checks that every command completes a flag that names a setting with the
// setting's allowed values.
func TestCompletionOfSettings(t *testing.T) {
	root := &cobra.Command{Use: "root"}
	child := &cobra.Command{Use: "configure", Run: func(*cobra.Command, []string) {}}
	child.Flags().String("deploy-target", "", "")
	child.Flags().String("log-format", "", "")
	child.Flags().String("token-file", "", "")
	child.Flags().String("state-directory", "", "")
	root.AddCommand(child)
	operator.CompleteValues(root, config.Table())
	for flag, want := range map[string]string{
		"deploy-target": "docker\nkubernetes\nprocess\n:4\n", "log-format": "text\njson\n:4\n", "token-file": ":0\n", "state-directory": ":16\n",
	} {
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&bytes.Buffer{})
		root.SetArgs([]string{cobra.ShellCompRequestCmd, "configure", "--" + flag, ""})
		if err := root.Execute(); err != nil || out.String() != want {
			t.Errorf("--%s is completed to %q, want %q, %v", flag, out.String(), want, err)
		}
	}
}

func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		out, code, err := execute(t, "completion", shell)
		if code != program.ExitOK || !strings.Contains(out, "customer-managed-workflow-agent") {
			t.Errorf("%s: %d, %v", shell, code, err)
		}
		path, lookErr := exec.LookPath(shell)
		if lookErr != nil {
			continue
		}
		check := exec.CommandContext(t.Context(), path, "-n")
		check.Stdin = strings.NewReader(out)
		if said, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s cannot read its script: %v\n%s", shell, err, said)
		}
	}
}
