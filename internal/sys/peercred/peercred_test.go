package peercred_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/sys/peercred"
)

// TestUID checks both ends of a connection within this process. The tests of package control use processes of several
// users.
func TestUID(t *testing.T) {
	listener := must.Get(net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(t.TempDir(), "s")}))(t)
	defer listener.Close()
	client := must.Get(net.DialUnix("unix", nil, listener.Addr().(*net.UnixAddr)))(t)
	server := must.Get(listener.AcceptUnix())(t)
	for name, conn := range map[string]*net.UnixConn{"client": client, "server": server} {
		if uid, err := peercred.UID(conn); err != nil || uid != os.Geteuid() {
			t.Errorf("the %s sees user %d, %v", name, uid, err)
		}
		must.OK(t, conn.Close())
		if uid, err := peercred.UID(conn); err == nil {
			t.Errorf("the closed %s sees user %d", name, uid)
		}
	}
}
