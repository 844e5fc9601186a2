package control

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/status"
)

func dirs(t *testing.T, name string) (state, instance string) {
	t.Helper()
	state = t.TempDir()
	instance = filepath.Join(state, "instances", name)
	if err := os.MkdirAll(instance, 0o700); err != nil {
		t.Fatal(err)
	}
	return state, instance
}

// testAgent serves a control socket. To stop it, close over and call stop.
type testAgent struct {
	drained atomic.Int64
	over    chan struct{}
	stop    func()
}

func serveAgent(t *testing.T, dir string) *testAgent {
	t.Helper()
	listener, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	a := &testAgent{over: make(chan struct{})}
	report := func() status.Report {
		r := status.Report{Healthy: true, Agent: status.Agent{Instance: filepath.Base(dir)}, Draining: a.drained.Load() > 0}
		r.Judge()
		return r
	}
	logger := logrus.New()
	logger.SetOutput(io.Discard)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Serve(ctx, listener, Agent{Report: report, Drain: func() { a.drained.Add(1) }, Over: a.over}, logrus.NewEntry(logger))
	}()
	a.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(a.stop)
	return a
}

func only(t *testing.T, state string) Instance {
	t.Helper()
	found, err := Find(state)
	if err != nil || len(found) != 1 {
		t.Fatalf("found %v, %v", found, err)
	}
	return found[0]
}

func TestStatusAndDrain(t *testing.T) {
	state, dir := dirs(t, "0")
	a := serveAgent(t, dir)
	instance := only(t, state)
	report, err := instance.Status(t.Context())
	if err != nil || report.Agent.Instance != "0" || report.State == status.Draining {
		t.Fatalf("got %+v, %v", report, err)
	}
	report, err = instance.Drain(t.Context())
	if err != nil || report.State != status.Draining || a.drained.Load() != 1 {
		t.Fatalf("got %+v, %v, drained %d times", report, err, a.drained.Load())
	}

	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for a.drained.Load() < 2 {
			<-time.After(time.Millisecond)
		}
	}()
	if _, err := instance.DrainAndWait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that is given up: %v", err)
	}
	type end struct {
		report status.Report
		err    error
	}
	ended := make(chan end)
	go func() {
		report, err := instance.DrainAndWait(t.Context())
		ended <- end{report, err}
	}()
	for a.drained.Load() < 3 {
		<-time.After(time.Millisecond)
	}
	close(a.over)
	a.stop()
	if e := <-ended; e.err != nil || e.report.State != status.Ended {
		t.Errorf("got %+v", e)
	}
	if _, err := instance.Status(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, socketName)); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestMethods(t *testing.T) {
	_, dir := dirs(t, "0")
	a := serveAgent(t, dir)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: Instance{dir: dir}.dial}}
	for _, tt := range []struct {
		method, path string
		want         int
	}{{"GET", "/drain", 405}, {"POST", "/status", 405}, {"GET", "/", 404}, {"POST", "/resume", 404}} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, "http://agent"+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.want {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.path, resp.StatusCode, tt.want)
		}
	}
	if a.drained.Load() != 0 {
		t.Error("something drained the agent")
	}
}

// TestAgentThatHangs checks that the error for a hung agent differs from the error for an agent
// that is not running.
func TestAgentThatHangs(t *testing.T) {
	state, dir := dirs(t, "0")
	listener, err := Listen(dir) // not served
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := only(t, state).Status(ctx); err == nil || errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), "agent 0 does not answer") {
		t.Errorf("got %v", err)
	}
}

// TestStaleSocket checks that a killed process's socket does not disturb the next agent.
func TestStaleSocket(t *testing.T) {
	state, dir := dirs(t, "0")
	address := &net.UnixAddr{Net: "unix", Name: filepath.Join(dir, socketName)}
	dead, err := net.ListenUnix("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	if _, err := only(t, state).Status(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a dead socket: %v", err)
	}
	serveAgent(t, dir)
	if _, err := only(t, state).Status(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLongStateDirectory uses a state directory whose path is too long for a socket address.
func TestLongStateDirectory(t *testing.T) {
	state := filepath.Join(t.TempDir(), strings.Repeat("long/", 60), strings.Repeat("x", 200))
	dir := filepath.Join(state, "instances", "12")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	a := serveAgent(t, dir)
	if report, err := only(t, state).Status(t.Context()); err != nil || report.Agent.Instance != "12" {
		t.Errorf("got %+v, %v", report, err)
	}
	info, err := os.Lstat(filepath.Join(dir, socketName))
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket is %v, %v", info, err)
	}
	close(a.over)
	a.stop()
	for _, place := range []string{dir, os.TempDir()} {
		if left, err := os.ReadDir(place); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v, %v", place, left, err)
		}
	}
}

func TestFind(t *testing.T) {
	state := t.TempDir()
	if found, err := Find(state); err != nil || found != nil {
		t.Errorf("a new state directory: %v, %v", found, err)
	}
	for _, name := range []string{"10", "2", "0", "backup"} {
		if err := os.MkdirAll(filepath.Join(state, "instances", name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	found, err := Find(state)
	var names []string
	for _, i := range found {
		names = append(names, i.Name)
		if _, err := i.Status(t.Context()); !errors.Is(err, ErrNotRunning) {
			t.Errorf("%s: %v", i.Name, err)
		}
	}
	if err != nil || strings.Join(names, " ") != "0 2 10" {
		t.Errorf("found %v, %v", names, err)
	}
}

// TestOtherUsersAreKeptOut checks that other users cannot connect. It requires root to run a child
// process as another user.
func TestOtherUsersAreKeptOut(t *testing.T) {
	if path := os.Getenv("TEST_CONTROL_SOCKET"); path != "" {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", path)
		if err == nil {
			conn.Close()
			t.Fatal("another user got in")
		}
		if !errors.Is(err, os.ErrPermission) {
			t.Fatal(err)
		}
		return
	}
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	// All parent directories are accessible, so that only the socket's mode protects it.
	dir, err := os.MkdirTemp("", "control-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	serveAgent(t, dir)
	// Other users cannot access the test binary's directory, which belongs to root.
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Skip(err)
	}
	program := filepath.Join(dir, "child.test")
	if err := os.WriteFile(program, self, 0o755); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), program, "-test.run", "^TestOtherUsersAreKeptOut$", "-test.v")
	child.Dir = dir
	child.Env = []string{"TEST_CONTROL_SOCKET=" + filepath.Join(dir, socketName), "HOME=" + dir, "TMPDIR=" + dir}
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := child.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS")) {
		t.Errorf("%v\n%s", err, out)
	}
}
