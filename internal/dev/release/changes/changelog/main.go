// Command changelog moves the notes in the directory changes into CHANGELOG.md: "make changelog".
package main

import (
	"fmt"
	"os"
	"time"

	"workflowagent/internal/dev/release/changes"
	"workflowagent/internal/host/release"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: make changelog VERSION=v1.2.3")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "make changelog:", err)
		os.Exit(1)
	}
}

func run(version string) error {
	if err := release.CheckVersion(version); err != nil {
		return err
	}
	return changes.Release(".", version, time.Now())
}
