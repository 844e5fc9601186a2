// Package unixsocket provides unix sockets whose paths can be longer than the operating system permits.
package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// maxPath is the maximum length of a socket's path on every supported system, in bytes. macOS allows 104 bytes
// including the final zero.
const maxPath = 103

// Listen creates a socket to which only this process's user and root can connect. An existing socket must belong
// to a dead process: Listen replaces it, so the caller needs a lock. Closing the listener removes the socket.
func Listen(path string) (net.Listener, error) {
	if err := removeDead(path); err != nil {
		return nil, err
	}
	short, done, err := reach(path)
	if err != nil {
		return nil, err
	}
	defer done()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: short})
	if err != nil {
		return nil, fmt.Errorf("creating the socket %s: %w", path, err)
	}
	listener.SetUnlinkOnClose(false) // the path might no longer be valid
	// Before this call, other users can connect if they can enter the directory and the umask permits it.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, fmt.Errorf("protecting the socket %s: %w", path, errors.Join(err, listener.Close()))
	}
	return &socket{listener, path}, nil
}

func removeDead(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("creating the socket %s: another file has this name; remove it", path)
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		return fmt.Errorf("removing the socket of an earlier process: %w", err)
	}
	return nil
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
		return fmt.Errorf("removing a socket: %w", err)
	}
	return nil
}

// Dial connects to a socket.
func Dial(ctx context.Context, path string) (*net.UnixConn, error) {
	short, done, err := reach(path)
	if err != nil {
		return nil, err
	}
	defer done()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", short)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil //nolint:forcetypeassert // the network is unix
}

// reach returns a path of a socket that is short enough for a socket address. The path is valid until done is
// called. If path is too long, the result leads through a symbolic link in a private temporary directory.
func reach(path string) (short string, done func(), err error) {
	if len(path) <= maxPath {
		return path, func() {}, nil
	}
	for _, base := range []string{os.TempDir(), "/tmp"} {
		var private string
		if private, err = os.MkdirTemp(base, "socket-"); err != nil {
			continue
		}
		done = func() { _ = os.RemoveAll(private) } // removes the link, not its target
		link := filepath.Join(private, "d")
		short = filepath.Join(link, filepath.Base(path))
		if len(short) > maxPath {
			err = fmt.Errorf("the path is longer than %d bytes even with a directory in %s", maxPath, base)
		} else if err = os.Symlink(filepath.Dir(path), link); err == nil {
			return short, done, nil
		}
		done()
	}
	return "", nil, fmt.Errorf("creating a short path for the socket %s: %w", path, err)
}
