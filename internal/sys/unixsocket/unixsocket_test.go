package unixsocket_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/sys/unixsocket"
)

func TestListenAndDial(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for name, dir := range map[string]string{"short": t.TempDir(), "long": filepath.Join(t.TempDir(), strings.Repeat("long/", 60))} {
		must.OK(t, os.MkdirAll(dir, 0o700))
		path := filepath.Join(dir, "s.sock")
		if _, err := unixsocket.Dial(t.Context(), path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: without a socket: %v", name, err)
		}
		listener := must.Get(unixsocket.Listen(path))(t)
		if info, err := os.Lstat(path); err != nil || info.Mode() != os.ModeSocket|0o600 {
			t.Errorf("%s: the socket is %v, %v", name, info, err)
		}
		conn := must.Get(unixsocket.Dial(t.Context(), path))(t)
		must.OK(t, conn.Close())
		must.OK(t, listener.Close())
		if err := listener.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: closed twice: %v", name, err)
		}
		for _, place := range []string{dir, os.TempDir()} {
			if left, err := os.ReadDir(place); err != nil || len(left) > 0 {
				t.Errorf("%s: left in %s: %v, %v", name, place, left, err)
			}
		}
	}
}

func TestStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	dead := must.Get(net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path}))(t)
	dead.SetUnlinkOnClose(false)
	must.OK(t, dead.Close())
	if _, err := unixsocket.Dial(t.Context(), path); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
	must.OK(t, must.Get(unixsocket.Listen(path))(t).Close())
}

// TestOtherFiles checks that a socket replaces only sockets.
func TestOtherFiles(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	must.OK(t, os.WriteFile(file, nil, 0o600))
	must.OK(t, os.Symlink(file, link))
	for _, path := range []string{file, link, dir} {
		if _, err := unixsocket.Listen(path); err == nil || !strings.Contains(err.Error(), "another file has this name") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if left := must.Get(os.ReadDir(dir))(t); len(left) != 2 {
		t.Errorf("left: %v", left)
	}
}
