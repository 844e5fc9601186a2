// Package process runs the command of a step in a session of its own, and ends what it
// leaves behind.
package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
)

// Process is the running command of a step: the leader of its own session, with
// no terminal, nothing on its standard input, and one pipe for all it prints.
type Process struct {
	cmd    *exec.Cmd
	PID    int // of the leader
	output *os.File
	Exited chan struct{} // closed when the leader has ended; State is set then
	copied chan struct{} // closed when the output has ended
	State  *os.ProcessState

	writing atomic.Bool // output is being passed on and not waited for
}

// Start starts cmd and copies its output to out. Standard input of cmd is
// /dev/null; its other streams must not be set.
func Start(cmd *exec.Cmd, out io.Writer) (*Process, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe for the output of the step: %w", err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	// A session of its own keeps the terminal and the signals of the group away,
	// and lets what the step leaves behind be found again.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		_ = r.Close()
		return nil, err
	}
	p := &Process{cmd: cmd, PID: cmd.Process.Pid, output: r, Exited: make(chan struct{}), copied: make(chan struct{})}
	go func() {
		defer close(p.Exited)
		_ = cmd.Wait() // says nothing that its state does not
		p.State = cmd.ProcessState
	}()
	go func() {
		defer close(p.copied)
		p.copy(out)
	}()
	return p, nil
}

// copyBuffer is the size of one read of a step's output, in bytes: the capacity
// of a pipe.
const copyBuffer = 64 << 10

func (p *Process) copy(out io.Writer) {
	buf := make([]byte, copyBuffer)
	for {
		n, err := p.output.Read(buf)
		if n > 0 {
			p.writing.Store(true)
			_, _ = out.Write(buf[:n]) // the log of a step never fails
			p.writing.Store(false)
		}
		if err != nil {
			return
		}
	}
}

// Interrupt sends SIGINT to the leader only: pulumi itself decides what its plugins
// receive.
func (p *Process) Interrupt() error {
	err := p.cmd.Process.Signal(syscall.SIGINT)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Kill ends the leader and everything in its session.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	KillSessions(p.PID)
}

// lingerTick is the pause between checks whether the output has ended.
const lingerTick = 100 * time.Millisecond

// Drain waits for the end of the output after the leader has ended. Processes that
// the step left behind may hold the pipe: they get linger, not counting the time in
// which output waits for space in the spool, and are killed then. It reports whether
// that was necessary.
func (p *Process) Drain(linger time.Duration) (killed bool) {
	tick := time.NewTicker(lingerTick)
	defer tick.Stop()
	var waited time.Duration
	for {
		select {
		case <-p.copied:
			_ = p.output.Close()
			return killed
		case <-tick.C:
		}
		if p.writing.Load() {
			continue
		}
		waited += lingerTick
		switch {
		case waited >= 2*linger && killed:
			// A process outside the session holds the pipe. It is no longer read.
			_ = p.output.Close()
		case waited >= linger && !killed:
			killed = true
			KillSessions(p.PID)
		}
	}
}
