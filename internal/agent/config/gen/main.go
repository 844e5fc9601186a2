// Command gen writes the files that follow from the field table of the agent's configuration,
// below the root of the repository given as its argument.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"workflowagent/internal/agent/config"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("give the root of the repository as the only argument")
	}
	root := args[0]
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		return fmt.Errorf("%s is not the root of the repository: %w", root, err)
	}
	for path, content := range map[string][]byte{
		filepath.Join(root, "docs", "configuration.md"): config.Reference(),
		filepath.Join(root, config.FileName+".sample"):  config.Sample(),
	} {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("write a generated file: %w", err)
		}
	}
	return nil
}
