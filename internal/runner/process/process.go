// Package process runs a step's command in its own session, and kills processes that outlive the
// command.
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

	"golang.org/x/sys/unix"
)

// Process is a step's running command. The command leads its own session. It has no terminal; its
// standard input is empty, and a single pipe receives all of its output.
type Process struct {
	cmd    *exec.Cmd
	PID    int // of the session's leader
	output *os.File
	Exited chan struct{} // closed when the leader has exited and State is set
	copied chan struct{} // closed after the last output has been copied
	State  *os.ProcessState

	writes atomic.Uint64 // begun and ended writes of output; odd during a write
	seen   uint64        // writes at the last call of stalled
}

// Start starts cmd and copies its output to out. The standard input of cmd is /dev/null. The caller
// must not set cmd's standard streams.
func Start(cmd *exec.Cmd, out io.Writer) (*Process, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("creating a pipe for the step's output: %w", err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	// A new session detaches the step from the terminal and from group signals, and identifies the
	// processes that outlive it.
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
		_ = cmd.Wait() // the state contains the result
		p.State = cmd.ProcessState
	}()
	go func() {
		defer close(p.copied)
		p.copy(out)
	}()
	return p, nil
}

// copyBuffer is the maximum size of one read of a step's output, in bytes. It is the capacity of a
// pipe.
const copyBuffer = 64 << 10

func (p *Process) copy(out io.Writer) {
	buf := make([]byte, copyBuffer)
	for {
		n, err := p.output.Read(buf)
		if n > 0 {
			p.writes.Add(1)
			_, _ = out.Write(buf[:n]) // writing to a step's log never fails
			p.writes.Add(1)
		}
		if err != nil {
			return
		}
	}
}

// Interrupt sends SIGINT only to the leader, because pulumi forwards it to its plugins as needed.
func (p *Process) Interrupt() error {
	err := p.cmd.Process.Signal(syscall.SIGINT)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// InterruptGroup sends SIGINT to the leader's process group, as Ctrl-C in a terminal does. A shell that
// waits for a program ends only if that program ends by the signal.
func (p *Process) InterruptGroup() error {
	select {
	case <-p.Exited:
		return nil
	default:
	}
	err := syscall.Kill(-p.PID, syscall.SIGINT)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// Kill kills the leader and every process in its session.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	KillSessions(p.PID)
}

const lingerTick = 100 * time.Millisecond

// Drain waits for the remaining output after the leader has exited, and reports whether it had to
// kill processes. Processes that outlive the step can hold the pipe open. Drain kills them after
// linger, not counting the time in which output waits for space in the spool: then one write lasts from
// tick to tick. It counts the time in which they write all the time.
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
		if p.stalled() {
			continue
		}
		waited += lingerTick
		switch {
		case waited >= 2*linger && killed:
			// A process outside the session holds the pipe open: stop reading.
			_ = p.output.Close()
		case waited >= linger && !killed:
			killed = true
			KillSessions(p.PID)
		}
	}
}

// stalled reports whether one write of output has lasted since the previous call.
func (p *Process) stalled() bool {
	writes, seen := p.writes.Load(), p.seen
	p.seen = writes
	return writes%2 == 1 && writes == seen
}

// SignalName returns the name of a signal, such as SIGKILL.
func SignalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return s.String()
}
