package child

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
)

// The ports of [FreePort]. Linux and macOS use higher ones for outgoing connections, which would otherwise take a port
// before the caller listens on it, or while its program restarts. Kubernetes uses those from 30000.
const (
	firstPort = 15000
	lastPort  = 29999
)

var reserved = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// FreePort returns a TCP port of host that was free when FreePort checked it. It returns no port twice.
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
	before := reserved.ports[port]
	reserved.ports[port] = true
	return !before
}
