// Package control connects a host's operator to the agents on that host: each agent serves HTTP
// over a unix socket in its instance directory.
//
// The socket exists in every configuration, and other users cannot access it. Unlike the health
// server, the socket also accepts a command: to drain the agent.
package control

import (
	"net"
	"path/filepath"

	"workflowagent/internal/sys/unixsocket"
)

const socketName = "control.sock"

// Listen creates the control socket in an instance directory that the caller has locked and that only
// its owner can enter. An existing socket belongs to a dead process, so Listen replaces it. Closing the
// listener removes the socket.
func Listen(dir string) (net.Listener, error) {
	return unixsocket.Listen(filepath.Join(dir, socketName))
}
