package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"workflowagent/internal/dev/lab/cluster/layout"
)

// programs starts and stops the node's programs, see [layout.Socket].
type programs struct {
	dir     string
	started chan struct{} // receives a value when a program was started

	mu      sync.Mutex
	running map[string]*program
}

type program struct {
	pid  int
	done chan struct{} // closed once the program has ended
}

func newPrograms(dir string) *programs {
	return &programs{dir: dir, started: make(chan struct{}, 1), running: map[string]*program{}}
}

// reap waits for the node's programs and for orphans, whose parent the first process of a namespace becomes.
func (p *programs) reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, 0, nil)
		switch {
		case errors.Is(err, syscall.ECHILD):
			<-p.started
		case err == nil:
			p.forget(pid)
		}
	}
}

func (p *programs) forget(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, program := range p.running {
		if program.pid == pid {
			delete(p.running, name)
			close(program.done)
		}
	}
}

// ServeHTTP handles a request of the cluster's owner.
func (p *programs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var err error
	name := strings.TrimPrefix(r.URL.Path, "/")
	switch r.Method {
	case http.MethodPut:
		err = p.start(name, r)
	case http.MethodDelete:
		err = p.stop(name, r)
	default:
		if p.find(name) == nil {
			err = fmt.Errorf("%s does not run", name)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

func (p *programs) find(name string) *program {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running[name]
}

func (p *programs) start(name string, r *http.Request) error {
	var start layout.Start
	if err := json.NewDecoder(r.Body).Decode(&start); err != nil {
		return fmt.Errorf("reading a request: %w", err)
	}
	if len(start.Args) == 0 {
		return errors.New("no program was named")
	}
	log, err := os.OpenFile(layout.Log(p.dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()

	// The lock keeps reap from waiting for a program that is not yet known.
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running[name] != nil {
		return fmt.Errorf("%s already runs", name)
	}
	pid, err := syscall.ForkExec(start.Args[0], start.Args, &syscall.ProcAttr{
		Dir: p.dir, Env: start.Env, Files: []uintptr{null.Fd(), log.Fd(), log.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("starting %s: %w", start.Args[0], err)
	}
	p.running[name] = &program{pid: pid, done: make(chan struct{})}
	select {
	case p.started <- struct{}{}:
	default:
	}
	return nil
}

// stop sends a signal and waits until the program has ended or the client gives up. A program that does not run is
// no error.
func (p *programs) stop(name string, r *http.Request) error {
	number, err := strconv.Atoi(r.URL.Query().Get("signal"))
	if err != nil {
		return fmt.Errorf("reading the signal's number: %w", err)
	}
	program := p.find(name)
	if program == nil {
		return nil
	}
	if err := syscall.Kill(program.pid, syscall.Signal(number)); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stopping %s: %w", name, err)
	}
	select {
	case <-program.done:
		return nil
	case <-r.Context().Done():
		return r.Context().Err()
	}
}
