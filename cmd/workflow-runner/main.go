// Command workflow-runner runs one job. The agent starts the command in a container or as a
// process, and passes the job on standard input.
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"workflowagent/internal/runner/source"
)

// version is set by the build.
var version = ""

func main() { os.Exit(run()) }

func run() int {
	if file := os.Getenv(source.AskpassEnv); file != "" {
		return askpass(file, strings.Join(os.Args[1:], " "))
	}
	code := 0
	err := newRootCommand(&code).Execute()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error: "+strings.ReplaceAll(err.Error(), "\n", " "))
		if code == 0 {
			code = 1
		}
	}
	return code
}

// newRootCommand returns the command line. Its commands store their exit code in *code.
func newRootCommand(code *int) *cobra.Command {
	root := &cobra.Command{
		Use:   "workflow-runner",
		Short: "Run one workflow job",
		Long: "workflow-runner runs one job of the workflow agent. The agent starts it in the job's\n" +
			"container or as a process. It reads the job from standard input or a file and runs its steps.",
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(newRunCommand(code), newDebugCommand(code), newProbeCommand(), newVersionCommand(), newInstallCommand(), newKeepCommand())
	root.AddCommand(newStepCommands()...)
	return root
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionText())
			return err
		},
	}
}

// versionText returns the version of the build, or the module's version if the build has none.
func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

func askpass(file, prompt string) int {
	answer, err := source.Answer(file, prompt)
	if err == nil {
		_, err = fmt.Println(answer)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
