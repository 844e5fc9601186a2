package evaluator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"workflowagent/internal/esc/wire"
)

// process is a process of workflow-esc.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.Closer
	reader *wire.Reader
	hello  wire.Hello
	statm  *os.File // its memory; nil where the system does not report it
	err    error    // of the start; then nothing but end may be called

	mu     sync.Mutex
	killed error // why it was killed, or nil
	over   chan struct{}
}

// Try starts a program as for a request, and ends it.
func Try(ctx context.Context, program string) (wire.Hello, error) {
	limit := startLimit
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	p := start(program, limit)
	p.end()
	return p.hello, p.err
}

// start starts a process and waits until it is ready.
func start(program string, limit time.Duration) *process {
	p := &process{over: make(chan struct{})}
	cmd := exec.Command(program) //nolint:noctx // it outlives the request that starts it
	// The program inherits no variables, no directory and no files except the two pipes. Its standard error can contain parts
	// of a definition, so it is discarded.
	cmd.Env, cmd.Dir, cmd.Stderr = []string{}, "/", nil
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if p.err = errors.Join(err1, err2); p.err != nil {
		return p
	}
	if p.err = cmd.Start(); p.err != nil {
		return p
	}
	p.cmd, p.stdin, p.stdout, p.reader = cmd, stdin, stdout, wire.NewReader(stdout)
	p.statm, _ = os.Open(fmt.Sprintf("/proc/%d/statm", cmd.Process.Pid)) // before the process hides itself
	timer := time.AfterFunc(limit, func() { p.kill(errors.New("it did not become ready")) })
	defer timer.Stop()
	err := p.read(&p.hello, wire.MaxMessage)
	switch {
	case err != nil:
		if cause := p.cause(); cause != nil {
			err = cause
		}
		p.err = fmt.Errorf("starting workflow-esc: %w", err)
	case p.hello.Protocol != wire.Protocol:
		p.err = fmt.Errorf("starting workflow-esc: it has version %q, which does not fit this server: install programs of one version", p.hello.Version)
	}
	return p
}

func (p *process) read(message any, limit int) error { return p.reader.Read(message, limit) }

func (p *process) write(message any) error {
	line, err := wire.Append(nil, message, wire.MaxMessage)
	if err != nil {
		return err
	}
	_, err = p.stdin.Write(line)
	return err
}

// kill kills the process because of a cause, of which the first one counts.
func (p *process) kill(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed == nil {
		p.killed = cause
	}
	_ = p.cmd.Process.Kill() // it can have exited
}

// cause returns why the process was killed, or nil.
func (p *process) cause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

// exit returns how the process ended, after it was killed if it has not ended itself.
func (p *process) exit() string {
	_ = p.cmd.Process.Kill()
	p.wait()
	return p.cmd.ProcessState.String()
}

// end ends the process and waits for its end.
func (p *process) end() {
	if p.cmd == nil {
		return
	}
	_ = p.stdin.Close()
	_ = p.cmd.Process.Kill()
	p.wait()
}

func (p *process) wait() {
	select {
	case <-p.over:
	default:
		close(p.over)
		_ = p.stdout.Close()
		_ = p.statm.Close()
		_ = p.cmd.Wait() // only the result counts
	}
}

// memoryEvery is the interval between two checks of the memory of a process.
const memoryEvery = 20 * time.Millisecond

// watchMemory kills the process if it needs too much memory, until the returned function is called.
func (p *process) watchMemory() (stop func()) {
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(memoryEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if p.resident() > wire.Memory {
				p.kill(errMemory)
				return
			}
		}
	})
	return func() {
		close(done)
		watching.Wait()
	}
}

// resident returns the memory of the process in bytes, or 0 where the system does not report it.
func (p *process) resident() int64 {
	var text [128]byte
	n, _ := p.statm.ReadAt(text[:], 0) // at its end, io.EOF
	var size, pages int64
	if _, err := fmt.Sscan(string(text[:n]), &size, &pages); err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
