package child

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"workflowagent/internal/sys/filelock"
)

// The ports of [FreePort]. Linux and macOS use higher ones for outgoing connections, which would otherwise take a port
// before the caller listens on it, or while its program restarts. Kubernetes uses those from 30000.
const (
	firstPort = 15000
	lastPort  = 29999
)

// reserved are the ports that this process has got. A lock can be nil.
var reserved = struct {
	sync.Mutex
	ports map[int]*filelock.Lock
}{ports: map[int]*filelock.Lock{}}

// FreePort returns a TCP port of host that was free when FreePort checked it. It returns no port twice, and none that
// another running process of this machine has got from it.
func FreePort(host string) (int, error) {
	for {
		port := firstPort + rand.N(lastPort-firstPort+1)
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port))) //nolint:noctx // Listen does not block.
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("finding a free port on %s: %w", host, err)
		}
		_ = l.Close()
		if reserve(port) {
			return port, nil
		}
	}
}

// reserve marks a port as used by this process, and reports whether it was unused.
func reserve(port int) bool {
	reserved.Lock()
	defer reserved.Unlock()
	if _, mine := reserved.ports[port]; mine {
		return false
	}
	lock, err := lockPort(port)
	if _, held := errors.AsType[*filelock.HeldError](err); held {
		return false
	}
	reserved.ports[port] = lock // nil if another user has made the file: a collision is improbable
	return true
}

// lockPort locks a port for this process, until it ends.
func lockPort(port int) (*filelock.Lock, error) {
	dir := filepath.Join(os.TempDir(), "workflow-lab-ports")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	return filelock.Try(file)
}
