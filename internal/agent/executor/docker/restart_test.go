package docker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/retry"
)

// relay is a socket that forwards to the engine's socket. To a client, closing the relay looks like
// an engine restart.
type relay struct {
	path, engine string // path is empty for a relay on TCP

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]struct{}
	running  sync.WaitGroup
	accepted chan struct{} // receives a value for each accepted connection
	cutAfter []byte        // if not nil, a connection is reset after it has carried these bytes
}

func newRelay(t *testing.T, engineHost string) *relay {
	t.Helper()
	dir, err := os.MkdirTemp("", "wfs")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{
		path: filepath.Join(dir, "relay.sock"), engine: strings.TrimPrefix(engineHost, "unix://"),
		conns: map[net.Conn]struct{}{}, accepted: make(chan struct{}, 1000),
	}
	r.up(t)
	t.Cleanup(func() {
		r.down()
		r.running.Wait()
		_ = os.RemoveAll(dir)
	})
	return r
}

func (r *relay) up(t *testing.T) {
	t.Helper()
	network, address := "unix", r.path
	if r.path == "" {
		network, address = "tcp", "127.0.0.1:0"
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	r.listener = listener
	r.mu.Unlock()
	r.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if r.hold(listener, conn) {
				r.accepted <- struct{}{}
				r.running.Go(func() { r.serve(conn) })
			}
		}
	})
}

// hold registers a connection, so that down can break it. If the listener is already down, hold
// closes the connection.
func (r *relay) hold(listener net.Listener, conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != listener {
		_ = conn.Close()
		return false
	}
	r.conns[conn] = struct{}{}
	return true
}

func (r *relay) serve(conn net.Conn) {
	defer conn.Close()
	engine, err := net.Dial("unix", r.engine)
	if err != nil {
		return
	}
	defer engine.Close()
	var copies sync.WaitGroup
	for _, pair := range [][2]net.Conn{{conn, engine}, {engine, conn}} {
		copies.Go(func() {
			if pair[0] == conn && r.cutAfter != nil {
				cutAfter(conn, engine, r.cutAfter)
				return
			}
			_, _ = io.Copy(pair[1], pair[0])
			// Forward the end of one direction. If that fails, break both directions.
			if err := pair[1].(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				_ = pair[0].Close()
			}
		})
	}
	copies.Wait()
}

// cutAfter copies data up to and including the chunk that contains last. It then resets only the
// client's side.
func cutAfter(from, engine net.Conn, last []byte) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if _, err := engine.Write(buf[:n]); err != nil {
			_ = from.Close()
			return
		}
		half := engine.(interface{ CloseWrite() error }).CloseWrite
		switch {
		case bytes.Contains(buf[:n], last):
			_ = from.(*net.TCPConn).SetLinger(0) // first of all, so that the connection cannot be closed normally
			_ = from.Close()
			_ = half()
			return
		case err != nil:
			_ = half()
			return
		}
	}
}

// brokenExecutor returns an executor whose connections break after the last part of a launch
// document.
func brokenExecutor(t *testing.T, o Options) executor.Executor {
	t.Helper()
	if !strings.HasPrefix(o.Host, "unix://") {
		t.Skip("the engine has no socket on this host")
	}
	r := &relay{
		engine: strings.TrimPrefix(o.Host, "unix://"), conns: map[net.Conn]struct{}{}, accepted: make(chan struct{}, 1000),
		cutAfter: []byte(`"exit":5}]}`),
	}
	r.up(t)
	o.Host = "tcp://" + r.listener.Addr().String()
	e := newExecutor(t, o)
	t.Cleanup(func() {
		_ = e.Close()
		r.down()
		r.running.Wait()
	})
	return e
}

func (r *relay) down() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener == nil {
		return
	}
	_ = r.listener.Close()
	r.listener = nil
	for conn := range r.conns {
		_ = conn.Close()
	}
	clear(r.conns)
}

func TestWaitSurvivesTheEnginesAbsence(t *testing.T) {
	host, runnerDir := needEngine(t)
	if !strings.HasPrefix(host, "unix://") {
		t.Skip("the engine has no socket on this host")
	}
	r := newRelay(t, host)
	e := newExecutor(t, Options{Config: Config{Host: "unix://" + r.path, Network: "none"}, WorkingDirectory: runnerDir})
	defer e.Close()
	h, err := prepare(t, e, spec(testImage))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := e.Start(ctx, h, []byte(`{"actions":[{"print":"ready\n"},{"countInterrupts":100000000}]}`)); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		exit executor.Exit
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		var exit executor.Exit
		err := retry.Policy{First: 100 * time.Millisecond, Max: time.Second}.Do(ctx, func(error) bool { return true }, func() (err error) {
			exit, err = e.Wait(ctx, h)
			return err
		})
		answers <- answer{exit, err}
	}()
	for range 3 {
		r.down()
		if err := e.Check(ctx); err == nil {
			t.Error("Check succeeded without an engine")
		}
		for len(r.accepted) > 0 {
			<-r.accepted
		}
		r.up(t)
		select {
		case <-r.accepted: // the repeated Wait has connected
		case a := <-answers:
			t.Fatalf("Wait ended although the job runs: %+v, %v", a.exit, a.err)
		}
	}
	if err := e.Stop(ctx, h, executor.StopInterrupt); err != nil {
		t.Fatal(err)
	}
	a := <-answers
	if a.err != nil || a.exit.Code != 101 {
		t.Errorf("Wait: %+v, %v", a.exit, a.err)
	}
	// A container that is missing on this engine may exist on the engine that created it.
	direct := newExecutor(t, Options{Config: Config{Host: host}})
	defer direct.Close()
	if err := e.Remove(ctx, h); err != nil {
		t.Fatal(err)
	}
	if exit, err := direct.Wait(ctx, h); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait on another engine: %+v, %v; want an error that names both", exit, err)
	}
}

func TestPrepareWaitsForTheEngine(t *testing.T) {
	host, _ := needEngine(t)
	registry := newRegistry(t, lab.RegistryOptions{})
	tagged, _ := push(t, registry, picture(runtime.GOARCH))
	r := newRelay(t, host)
	e := newExecutor(t, Options{Config: Config{Host: "unix://" + r.path, Network: "none", PullImage: true}, WorkingDirectory: engine.runnerDir})
	defer e.Close()
	asked := registry.Hold()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := spec(tagged)
	s.JobID, s.Epoch, s.Owner = "waits", 1, "owner-"+t.Name()
	said := make(chan string, 100)
	type answer struct {
		h   executor.Handle
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		h, err := e.Prepare(ctx, s, func(line string) { said <- line })
		answers <- answer{h, err}
	}()
	<-asked
	r.down()
	registry.Release()
	for line := ""; !strings.Contains(line, "waiting for it"); {
		select {
		case line = <-said:
		case a := <-answers:
			t.Fatalf("Prepare ended without an engine: %v", a.err)
		case <-ctx.Done():
			t.Fatal("Prepare did not report that it waits")
		}
	}
	r.up(t)
	a := <-answers
	if a.err != nil {
		t.Fatal(a.err)
	}
	if err := e.Remove(ctx, a.h); err != nil {
		t.Error(err)
	}
}
