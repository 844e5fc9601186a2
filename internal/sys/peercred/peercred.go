// Package peercred tells which user a process has that is connected by a unix socket.
package peercred

import (
	"fmt"
	"net"
)

// UID returns the id of the user of the process at the other end of a connection: for a client, of the process
// that listens, and for a server, of the process that connected. The kernel states it, so the process cannot lie.
func UID(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("reading the user at the other end of a socket: %w", err)
	}
	var uid int
	var failed error
	if err := raw.Control(func(fd uintptr) { uid, failed = peer(int(fd)) }); err != nil {
		failed = err
	}
	if failed != nil {
		return 0, fmt.Errorf("reading the user at the other end of a socket: %w", failed)
	}
	return uid, nil
}
