package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/api/control"
	"workflowagent/internal/server/fault"
)

// echo answers each operation with its name and request, or with an error.
type echo struct{ err error }

func (e echo) Call(_ context.Context, operation string, request []byte) ([]byte, error) {
	if e.err != nil {
		return nil, e.err
	}
	return json.Marshal(map[string]string{"operation": operation, "request": string(request)})
}

// serve serves a socket in one of the directories until the test ends, or stop is called.
func serve(t *testing.T, about control.About, c admin.Caller, dirs ...string) (stop func()) {
	t.Helper()
	listener := must.Get(control.Listen(dirs...))(t)
	server := &http.Server{
		Handler:     control.Handler(control.Server{About: about, Caller: c, Log: storetest.Log()}),
		ConnContext: control.ConnContext,
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		must.OK(t, server.Close())
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serving: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func wanted(dir string) control.Wanted { return control.Wanted{Version: "v2", DataDir: dir} }

func TestCall(t *testing.T) {
	dir := t.TempDir()
	if _, err := control.Find(t.Context(), wanted(dir), filepath.Join(dir, "missing"), dir); !errors.Is(err, control.ErrNotRunning) {
		t.Errorf("without a server: %v", err)
	}
	about := control.About{Version: "v1", PID: 7, DataDir: dir}
	stop := serve(t, about, echo{}, dir)
	w := wanted(dir)
	c := must.Get(control.Find(t.Context(), w, filepath.Join(dir, "missing"), dir))(t)
	defer c.Close()
	if c.About() != about {
		t.Errorf("the server is %+v", c.About())
	}
	var answer map[string]string
	must.OK(t, json.Unmarshal(must.Get(c.Call(t.Context(), "pool-list", []byte("{}")))(t), &answer))
	if answer["operation"] != "pool-list" || answer["request"] != "{}" {
		t.Errorf("got %v", answer)
	}
	stop()
	if _, err := c.Call(t.Context(), "pool-list", []byte("{}")); err == nil || !strings.Contains(err.Error(), "may or may not have been made") {
		t.Errorf("after the end: %v", err)
	}
	if _, err := control.Find(t.Context(), w, dir); !errors.Is(err, control.ErrNotRunning) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "control.sock")); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

// TestErrors checks that errors are as if they had happened in the command.
func TestErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		kind fault.Kind
		text string
	}{
		"refused":           {fault.Conflict("the user %q exists", "ann"), fault.KindConflict, `the user "ann" exists`},
		"failed":            {errors.New("the disk is full"), "", "the disk is full"},
		"unknown operation": {&admin.UnknownError{Operation: "x"}, "", "the running server has version v1, which does not know this command of version v2"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			serve(t, control.About{Version: "v1", DataDir: dir}, echo{tt.err}, dir)
			c := must.Get(control.Find(t.Context(), wanted(dir), dir))(t)
			defer c.Close()
			if _, err := c.Call(t.Context(), "x", []byte("{}")); fault.KindOf(err) != tt.kind || err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v", err)
			}
		})
	}
	dir := t.TempDir()
	serve(t, control.About{DataDir: dir}, echo{}, dir)
	c := must.Get(control.Find(t.Context(), wanted(dir), dir))(t)
	defer c.Close()
	if _, err := c.Call(t.Context(), "x", make([]byte, 65<<20)); fault.KindOf(err) != fault.KindTooLarge {
		t.Errorf("a large request: %v", err)
	}
}

func TestOtherServers(t *testing.T) {
	mine, runtime := t.TempDir(), t.TempDir()
	serve(t, control.About{DataDir: mine, Database: "postgres://u@h/a"}, echo{}, runtime)
	for name, tt := range map[string]struct {
		w     control.Wanted
		dirs  []string
		found bool
	}{
		"the same":                            {control.Wanted{DataDir: mine + "/."}, []string{runtime}, true},
		"any":                                 {control.Wanted{}, []string{runtime}, true},
		"the same database":                   {control.Wanted{DataDir: mine, Database: "postgres://u@h/a"}, []string{runtime}, true},
		"another data directory":              {control.Wanted{DataDir: t.TempDir()}, []string{runtime}, false},
		"another database":                    {control.Wanted{DataDir: mine, Database: "postgres://u@h/b"}, []string{runtime}, false},
		"another database, no data directory": {control.Wanted{Database: "postgres://u@h/b"}, []string{runtime}, false},
	} {
		c, err := control.Find(t.Context(), tt.w, tt.dirs...)
		if tt.found != (err == nil) || err != nil && !errors.Is(err, control.ErrNotRunning) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			c.Close()
		}
	}
	// A server with the command's own data directory that differs otherwise must not be passed over.
	dir := t.TempDir()
	serve(t, control.About{DataDir: "/in/the/container"}, echo{}, dir)
	c := must.Get(control.Find(t.Context(), control.Wanted{DataDir: dir}, dir))(t)
	c.Close()
	_, err := control.Find(t.Context(), control.Wanted{DataDir: dir, Database: "postgres://u@h/b"}, dir)
	if err == nil || errors.Is(err, control.ErrNotRunning) || !strings.Contains(err.Error(), "its database is that in its data directory, and not postgres://u@h/b") {
		t.Errorf("got %v", err)
	}
}

// TestStaleSocket checks that the socket of a dead server counts as none, and does not disturb the next server.
func TestStaleSocket(t *testing.T) {
	dir := t.TempDir()
	dead := must.Get(net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(dir, "control.sock")}))(t)
	dead.SetUnlinkOnClose(false)
	must.OK(t, dead.Close())
	if _, err := control.Find(t.Context(), wanted(dir), dir); !errors.Is(err, control.ErrNotRunning) {
		t.Errorf("a dead socket: %v", err)
	}
	serve(t, control.About{DataDir: dir}, echo{}, dir)
	must.Get(control.Find(t.Context(), wanted(dir), dir))(t).Close()
}

// TestTwoServers checks that a server does not take the socket of another one.
func TestTwoServers(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	stop := serve(t, control.About{Version: "first", DataDir: dir}, echo{}, dir)
	if _, err := control.Listen(dir); err == nil || !strings.Contains(err.Error(), "another server answers the commands") {
		t.Errorf("got %v", err)
	}
	serve(t, control.About{Version: "second", DataDir: other}, echo{}, dir, other)
	for want, dir := range map[string]string{"first": dir, "second": other} {
		c := must.Get(control.Find(t.Context(), wanted(dir), dir))(t)
		if c.About().Version != want {
			t.Errorf("in %s answers %s", dir, c.About().Version)
		}
		c.Close()
	}
	stop()
	serve(t, control.About{Version: "third", DataDir: dir}, echo{}, dir)
}

// TestServerThatHangs checks that a server that does not answer counts as running.
func TestServerThatHangs(t *testing.T) {
	dir := t.TempDir()
	listener := must.Get(control.Listen(dir))(t) // not served
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := control.Find(ctx, wanted(dir), dir); err == nil || errors.Is(err, control.ErrNotRunning) || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("got %v", err)
	}
}

// TestStrangeFiles puts something else where the socket belongs.
func TestStrangeFiles(t *testing.T) {
	target := t.TempDir()
	serve(t, control.About{DataDir: target}, echo{}, target)
	for name, create := range map[string]func(path string) error{
		"a file":           func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a link":           func(path string) error { return os.Symlink(filepath.Join(target, "control.sock"), path) },
		"a directory":      func(path string) error { return os.Mkdir(path, 0o700) },
		"a named pipe":     func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a link to itself": func(path string) error { return os.Symlink(path, path) },
	} {
		dir := t.TempDir()
		must.OK(t, create(filepath.Join(dir, "control.sock")))
		if _, err := control.Find(t.Context(), wanted(dir), dir); err == nil || errors.Is(err, control.ErrNotRunning) || !strings.Contains(err.Error(), "is not a socket") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := control.Listen(dir); err == nil || !strings.Contains(err.Error(), "another file has this name") {
			t.Errorf("%s: a server: %v", name, err)
		}
	}
	dir := t.TempDir()
	must.OK(t, os.Symlink(filepath.Join(target, "control.lock"), filepath.Join(dir, "control.lock")))
	if _, err := control.Listen(dir); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a link in the place of the lock: %v", err)
	}
}

const (
	childEnv = "TEST_CONTROL_CHILD"
	server   = 1001 // the server's user
	mallory  = 1002
)

// TestMain lets the test binary be the processes of other users.
func TestMain(m *testing.M) {
	dir := os.Getenv("TEST_CONTROL_DIR")
	switch os.Getenv(childEnv) {
	case "":
		os.Exit(m.Run())
	case "serve": // until its input ends
		listener, err := control.Listen(dir)
		if err == nil {
			err = os.Chmod(filepath.Join(dir, "control.sock"), 0o777) // only the kernel's word remains
		}
		if err != nil {
			println(err.Error())
			os.Exit(1)
		}
		log := logrus.New()
		log.SetOutput(io.Discard)
		go func() {
			_ = (&http.Server{
				Handler:     control.Handler(control.Server{About: control.About{DataDir: dir}, Caller: echo{}, Log: logrus.NewEntry(log)}),
				ConnContext: control.ConnContext,
			}).Serve(listener)
		}()
		println("serving")
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "call":
		c, err := control.Find(context.Background(), control.Wanted{DataDir: dir}, dir)
		if err == nil {
			_, err = c.Call(context.Background(), "x", []byte("{}"))
		}
		if err != nil {
			println(err.Error())
			os.Exit(1)
		}
		println("done")
	}
}

// users prepares processes of several users, who can all enter base.
type users struct {
	t             *testing.T
	base, program string
}

func newUsers(t *testing.T) users {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	base := must.Get(os.MkdirTemp("", "control-"))(t)
	t.Cleanup(func() { os.RemoveAll(base) })
	must.OK(t, os.Chmod(base, 0o755))
	program := filepath.Join(base, "child.test")
	must.OK(t, os.WriteFile(program, must.Get(os.ReadFile("/proc/self/exe"))(t), 0o755))
	return users{t, base, program}
}

// dir creates a directory of a user.
func (u users) dir(name string, uid int) string {
	u.t.Helper()
	dir := filepath.Join(u.base, name)
	must.OK(u.t, os.Mkdir(dir, 0o755))
	must.OK(u.t, os.Chown(dir, uid, uid))
	return dir
}

func (u users) command(uid int, what, dir string) *exec.Cmd {
	cmd := exec.CommandContext(u.t.Context(), u.program)
	cmd.Dir = u.base
	cmd.Env = []string{childEnv + "=" + what, "TEST_CONTROL_DIR=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	return cmd
}

// serve serves as a user until the test ends.
func (u users) serve(uid int, dir string) {
	u.t.Helper()
	cmd := u.command(uid, "serve", dir)
	input, output := must.Get(cmd.StdinPipe())(u.t), must.Get(cmd.StderrPipe())(u.t)
	must.OK(u.t, cmd.Start())
	u.t.Cleanup(func() {
		input.Close()
		_ = cmd.Wait()
	})
	line := make([]byte, 1000)
	n, _ := output.Read(line)
	if !strings.HasPrefix(string(line[:n]), "serving") {
		u.t.Fatalf("the server says %s", line[:n])
	}
}

// calls runs a command as a user, and checks what it says.
func (u users) calls(uid int, dir, want string) {
	u.t.Helper()
	out, _ := u.command(uid, "call", dir).CombinedOutput()
	if !strings.Contains(string(out), want) {
		u.t.Errorf("the command of user %d says %q, want %q", uid, out, want)
	}
}

// TestUsers runs servers and commands as several users. The mode of the socket lets all of them connect, so only what
// the kernel says about the processes protects it.
func TestUsers(t *testing.T) {
	u := newUsers(t)
	dir := u.dir("data", server)
	u.serve(server, dir)
	u.calls(0, dir, "done")
	u.calls(server, dir, "done")
	u.calls(mallory, dir, "which is not the server's user") // a command of mallory believes only root and mallory
	// A client that does not care who the server is gets no answer from it either.
	raw := u.command(mallory, "", dir)
	raw.Env = nil
	raw.Args = append(raw.Args, "-test.run=^TestRaw$", "-test.v")
	raw.Env = []string{"TEST_CONTROL_RAW=" + filepath.Join(dir, "control.sock"), "HOME=" + u.base, "TMPDIR=/tmp"}
	if out, err := raw.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestRaw") {
		t.Errorf("%v\n%s", err, out)
	}

	// Mallory can write to the directory of another server, and waits there for a command of root.
	trap := u.dir("trap", server)
	must.OK(t, os.Chmod(trap, 0o777))
	u.serve(mallory, trap)
	u.calls(0, trap, "can write to")
	u.calls(server, trap, "a process of user 1002 listens")
	// The same after the administrator has corrected the mode, but not found the process.
	must.OK(t, os.Chmod(trap, 0o755))
	u.calls(0, trap, "a process of user 1002 listens")
	// A directory of mallory in the place of the server's.
	place := u.dir("place", mallory)
	own := filepath.Join(place, "data")
	must.OK(t, os.Mkdir(own, 0o755))
	must.OK(t, os.Chown(own, server, server))
	u.serve(server, own)
	u.calls(0, own, "place belongs to user 1002")
	u.calls(server, own, "done")
	// A link of mallory that leads to another server of root's.
	must.OK(t, os.Symlink(dir, filepath.Join(place, "link")))
	u.calls(0, filepath.Join(place, "link"), "belongs to user 1002")
}

// TestRaw is a client of another user that ignores who the server is.
func TestRaw(t *testing.T) {
	path := os.Getenv("TEST_CONTROL_RAW")
	if path == "" {
		t.Skip("only TestUsers starts it")
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	for method, page := range map[string]string{http.MethodGet: "/about", http.MethodPost: "/operations/user-list"} {
		req := must.Get(http.NewRequestWithContext(t.Context(), method, "http://server"+page, strings.NewReader("{}")))(t)
		resp := must.Get(client.Do(req))(t)
		body := must.Get(io.ReadAll(resp.Body))(t)
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden || !strings.Contains(string(body), "only root and the server's own user") || strings.Contains(string(body), "dataDir") {
			t.Errorf("%s %s: %d %s", method, page, resp.StatusCode, body)
		}
	}
}

// TestMode checks that other users cannot even connect to the socket of a server.
func TestMode(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, os.Chmod(dir, 0o755))
	serve(t, control.About{}, echo{}, dir)
	for _, name := range []string{"control.sock", "control.lock"} {
		if info := must.Get(os.Lstat(filepath.Join(dir, name)))(t); info.Mode().Perm() != 0o600 {
			t.Errorf("%s has the mode %v", name, info.Mode())
		}
	}
}
