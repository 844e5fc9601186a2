package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
)

// output runs a command and returns its output. The error includes the command's message.
func output(cmd *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(stderr.String() + "\n" + stdout.String())
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, said)
	}
	return stdout.Bytes(), nil
}
