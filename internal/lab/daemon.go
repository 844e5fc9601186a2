package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Process is a program that runs in the background and writes into a log file.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // how it ended, once done is closed
}

// StartProcess starts a program with a whole environment; what it writes is
// appended to logFile. When ctx ends it gets a SIGTERM and, if it does not
// listen, is killed.
func StartProcess(ctx context.Context, binary string, args, env []string, logFile string) (*Process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", binary, err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopPatience
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", binary, err)
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
		if p.err == nil {
			p.err = errors.New("exit status 0")
		}
	}()
	return p, nil
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the process ended; it waits for that.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Signal sends a signal to the process, not to its children.
func (p *Process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Stop sends a signal, waits for the end and kills the process after patience.
func (p *Process) Stop(sig syscall.Signal, patience time.Duration) error {
	_ = p.Signal(sig)
	select {
	case <-p.done:
		return nil
	case <-time.After(patience):
		_ = p.Signal(syscall.SIGKILL)
		<-p.done
		return fmt.Errorf("%s did not end within %s and was killed", p.cmd.Path, patience)
	}
}
