package lab

import (
	"context"
	"os/exec"
	"syscall"
	"time"
)

// stopPatience is how long a child process has between being asked to end and
// being killed.
const stopPatience = 10 * time.Second

// command returns a child process that is asked to end when ctx does, with all
// of its descendants, and is killed if it does not listen.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = stopPatience
	return cmd
}
