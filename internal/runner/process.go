package runner

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

// process is the running command of a step: the leader of its own session, with
// no terminal, nothing on its standard input, and one pipe for all it prints.
type process struct {
	cmd    *exec.Cmd
	pid    int
	output *os.File
	exited chan struct{} // closed when the leader has ended; then state is set
	copied chan struct{} // closed when the output has ended
	state  *os.ProcessState

	writing atomic.Bool // output is being passed on and not waited for
}

// startProcess starts cmd and copies its output to out. Standard input of cmd is
// /dev/null; its other streams must not be set.
func startProcess(cmd *exec.Cmd, out io.Writer) (*process, error) {
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
	p := &process{cmd: cmd, pid: cmd.Process.Pid, output: r, exited: make(chan struct{}), copied: make(chan struct{})}
	go func() {
		defer close(p.exited)
		_ = cmd.Wait() // says nothing that its state does not
		p.state = cmd.ProcessState
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

func (p *process) copy(out io.Writer) {
	buf := make([]byte, copyBuffer)
	for {
		n, err := p.output.Read(buf)
		if n > 0 {
			p.writing.Store(true)
			_, _ = out.Write(buf[:n]) // a [stepLog] never fails
			p.writing.Store(false)
		}
		if err != nil {
			return
		}
	}
}

// interrupt sends SIGINT to the leader and to nobody else: pulumi decides itself
// what its plugins get to know.
func (p *process) interrupt() error {
	err := p.cmd.Process.Signal(syscall.SIGINT)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// kill ends the leader and everything in its session.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	killSessions(p.pid)
}

// lingerTick is how often it is looked whether output is still being waited for.
const lingerTick = 100 * time.Millisecond

// drain waits for the end of the output after the leader has ended. Processes that
// the step left behind may hold the pipe: they get linger, not counting the time in
// which output waits for space in the spool, and are killed then. It reports whether
// that was necessary.
func (p *process) drain(linger time.Duration) (killed bool) {
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
			// Somebody outside the session holds the pipe. Nobody reads it any more.
			_ = p.output.Close()
		case waited >= linger && !killed:
			killed = true
			killSessions(p.pid)
		}
	}
}
