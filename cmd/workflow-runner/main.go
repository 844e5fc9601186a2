// Command workflow-runner runs one job. The agent starts the command in a container or as a
// process, and passes the job on standard input.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/runner/languagehost"
	"workflowagent/internal/runner/source"
)

// version is set by the linker.
var version = ""

func main() { os.Exit(run()) }

func run() int {
	if file := os.Getenv(source.AskpassEnv); file != "" {
		return askpass(file, strings.Join(os.Args[1:], " "))
	}
	root := newRootCommand
	if filepath.Base(os.Args[0]) == languagehost.Program {
		root = newLanguageHostCommand
	}
	code, line := program.Result(root().Execute())
	if line != "" {
		fmt.Fprintln(os.Stderr, strings.ReplaceAll(line, "\n", " "))
	}
	return code
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "workflow-runner",
		Short: "Run one workflow job",
		Long: "workflow-runner runs one job of the workflow agent. The agent starts it in the job's\n" +
			"container or as a process. It reads the job from standard input or a file and runs its steps.",
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(newRunCommand(), newDebugCommand(), newProbeCommand(), program.NewVersionCommand(program.Version(version)), newInstallCommand(), newKeepCommand())
	root.AddCommand(newStepCommands()...)
	return root
}

func askpass(file, prompt string) int {
	answer, err := source.Answer(file, prompt)
	if err == nil {
		_, err = fmt.Println(answer)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return program.ExitFailed
	}
	return program.ExitOK
}
