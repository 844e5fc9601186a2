package process

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// spareAge is how long a runner that waits for its launch document is good for. It
// ends by itself after [launchPatience], and must not do so while it is given one.
const spareAge = launchPatience * 2 / 3

// spare is a runner that was started and waits for its launch document on its
// standard input. Without one it starts nothing, however it loses this process: it
// reads the end of its input and ends. So it may be started before the job may, and
// becomes ready while definition and leave are under way.
type spare struct {
	process *os.Process
	stdin   *os.File
	since   time.Time
}

// exec starts a runner in the directory of a job.
func (e *Executor) exec(d dir) (*spare, error) {
	output, err := os.OpenFile(d.path(fileOutput), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	since := time.Now()
	p, err := os.StartProcess(e.runner, []string{filepath.Base(e.runner), "run", "--job-dir", d.path(dirJob)}, &os.ProcAttr{
		Dir:   d.path(dirJob),
		Env:   append(environment(os.Environ(), d), d.marker()),
		Files: []*os.File{r, output, output},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = w.Close()
		return nil, err
	}
	return &spare{process: p, stdin: w, since: since}, nil
}

// discard ends a runner that was given nothing, so there is nothing to lose.
func (s *spare) discard() {
	_ = s.stdin.Close()
	_ = s.process.Kill()
	_, _ = s.process.Wait()
}

// warm starts a runner for a job that is about to be started. Failing is no error:
// the start tries it again, and has somebody to tell.
func (e *Executor) warm(d dir) {
	s, err := e.exec(d)
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ctx.Err() != nil || e.spares[d] != nil {
		s.discard()
		return
	}
	e.spares[d] = s
}

// spare returns the runner that waits in the directory of a job, if there is one,
// and forgets it.
func (e *Executor) spare(d dir) *spare {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.spares[d]
	delete(e.spares, d)
	return s
}

// cool ends the runner that waits in the directory of a job, if there is one.
func (e *Executor) cool(d dir) {
	if s := e.spare(d); s != nil {
		s.discard()
	}
}

// coolAll ends all runners that wait.
func (e *Executor) coolAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for d, s := range e.spares {
		s.discard()
		delete(e.spares, d)
	}
}

// claim makes a runner that waits, or a new one, the one of the job and records who
// it is. It returns the writing end of the runner's standard input.
func (e *Executor) claim(d dir) (identity, *os.File, error) {
	s := e.spare(d)
	if s != nil && (time.Since(s.since) > spareAge || !s.waits()) {
		s.discard()
		s = nil
	}
	if s == nil {
		var err error
		if s, err = e.exec(d); err != nil {
			return identity{}, nil, err
		}
	}
	// From here on it is known by its identity, as to any other agent process.
	// It is a child, so its number is not given away before its status is taken.
	id, err := identify(s.process.Pid)
	if err == nil {
		err = writeJSON(d.path(fileProcess), id)
	}
	if err != nil {
		s.discard()
		return identity{}, nil, err
	}
	if err := s.process.Release(); err != nil {
		_ = s.stdin.Close()
		return identity{}, nil, err
	}
	return id, s.stdin, nil
}

// waits says whether the runner is still there.
func (s *spare) waits() bool {
	p, err := lookUp(s.process.Pid)
	return err == nil && !p.zombie
}
