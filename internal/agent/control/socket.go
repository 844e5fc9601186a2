// Package control connects a host's operator to the agents on that host: each agent serves HTTP
// over a unix socket in its instance directory.
//
// The socket exists in every configuration, and other users cannot access it. Unlike the health
// server, the socket also accepts a command: to drain the agent.
package control

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

const socketName = "control.sock"

// maxSocketPath is the maximum length of a socket's path on every supported system, in bytes. macOS
// allows 104 bytes including the final zero.
const maxSocketPath = 103

// Listen creates the control socket in an instance directory that the caller has locked. Only the
// owner can connect to it. An existing socket belongs to a dead process, so Listen replaces it.
// Closing the listener removes the socket.
func Listen(dir string) (net.Listener, error) {
	real := filepath.Join(dir, socketName)
	if err := os.Remove(real); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("removing the control socket of an earlier process: %w", err)
	}
	path, done, err := reach(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		return nil, fmt.Errorf("creating the control socket in %s: %w", dir, err)
	}
	listener.SetUnlinkOnClose(false) // the path might no longer be valid
	// No other user can connect before this call, because only the owner can access the directory.
	if err := os.Chmod(real, 0o600); err != nil {
		return nil, fmt.Errorf("protecting the control socket: %w", errors.Join(err, listener.Close()))
	}
	return &socket{listener, real}, nil
}

type socket struct {
	*net.UnixListener
	path string
}

// Close closes the listener and removes the socket file.
func (s *socket) Close() error {
	err := s.UnixListener.Close()
	if err != nil {
		return err // closed before; the file might now belong to another process
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the control socket: %w", err)
	}
	return nil
}

// reach returns a path of the socket in dir that is short enough for a socket address. The path is
// valid until done is called. If dir is too long, the path leads through a symbolic link in a
// private temporary directory.
func reach(dir string) (path string, done func(), err error) {
	if path = filepath.Join(dir, socketName); len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	for _, base := range []string{os.TempDir(), "/tmp"} {
		var private string
		if private, err = os.MkdirTemp(base, "agent-"); err != nil {
			continue
		}
		done = func() { _ = os.RemoveAll(private) } // removes the link, not its target
		link := filepath.Join(private, "i")
		path = filepath.Join(link, socketName)
		if len(path) > maxSocketPath {
			err = fmt.Errorf("the path of the control socket is longer than %d bytes even with a directory in %s", maxSocketPath, base)
		} else if err = os.Symlink(dir, link); err == nil {
			return path, done, nil
		}
		done()
	}
	return "", nil, fmt.Errorf("creating a short path for the control socket in %s: %w", dir, err)
}
