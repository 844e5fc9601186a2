// Package child starts programs as child processes, and has what their users need: polls, free ports, tails of logs.
package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// Patience is the grace period between SIGTERM and SIGKILL for a child process.
const Patience = 30 * time.Second

// Command returns a command whose process group receives SIGTERM when ctx is done, and is killed
// after the grace period.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = Patience
	return cmd
}

// Process is a background program that writes to a log file. It has its own process group, so that
// ^C in the terminal does not reach the program. On Linux, the program receives SIGTERM when its
// parent dies.
type Process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error // valid once done is closed
}

// Start starts a program with the complete environment env and appends its output to
// logFile. When ctx is done, the program receives SIGTERM and is killed after a grace period.
func Start(ctx context.Context, binary string, args, env []string, logFile string) (*Process, error) {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = env
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = Patience
	return StartCommand(cmd, logFile)
}

// StartCommand starts a command and appends its output to logFile.
func StartCommand(cmd *exec.Cmd, logFile string) (*Process, error) {
	file, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", cmd.Path, err)
	}
	defer func() { _ = file.Close() }()
	cmd.Stdout, cmd.Stderr = file, file
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	dieWithParent(cmd.SysProcAttr)

	p := &Process{cmd: cmd, log: logFile, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel ties the child to the thread that started it, so the thread must outlive the
		// child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		if p.err = cmd.Wait(); p.err == nil {
			p.err = errors.New("exit status 0")
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	return p, nil
}

// Pid returns the process ID.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has exited.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err waits until the process has exited and returns its error.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Signal sends a signal to the process, not to its children.
func (p *Process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Stop sends a signal and waits for the process to exit. If the process is still running after
// patience, Stop kills it and returns an error.
func (p *Process) Stop(sig syscall.Signal, patience time.Duration) error {
	if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping %s: %w", p.cmd.Path, err)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
	return fmt.Errorf("%s did not exit within %s and was killed", p.cmd.Path, patience)
}

// Await is [Poll], but also ends with an error when the process has exited.
func (p *Process) Await(ctx context.Context, interval time.Duration, ready func() (bool, error)) error {
	return Poll(ctx, interval, func() (bool, error) {
		select {
		case <-p.done:
			return false, fmt.Errorf("%s exited at once (%w):\n%s", filepath.Base(p.cmd.Path), p.err, Tail(p.log, 15))
		default:
			return ready()
		}
	})
}

// Poll calls try at once and at every interval until try returns true or an error, or ctx is done.
func Poll(ctx context.Context, interval time.Duration, try func() (done bool, err error)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		done, err := try()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}
