package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"workflowagent/internal/dev/lab/cluster/layout"
)

// run is the keeper with the argument "keep DIRECTORY", and the first process with "inside DIRECTORY".
func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: bottle keep|inside DIRECTORY")
	}
	switch args[0] {
	case "keep":
		return keep(args[1])
	case "inside":
		return inside(args[1])
	default:
		return fmt.Errorf("no command %q", args[0])
	}
}

// ip runs iproute2's program.
func ip(args ...string) error {
	cmd := exec.Command("ip", args...) //nolint:noctx // It changes one setting of the kernel and does not wait.
	cmd.Env = append(os.Environ(), "PATH="+layout.Path)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
