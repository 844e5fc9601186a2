package initsystem

import (
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
)

// manager listens in place of a service manager. received returns the next message with a prefix.
func manager(t *testing.T) (received func(prefix string) string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	listener := must.Get(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
	t.Cleanup(func() { listener.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func(prefix string) string {
		t.Helper()
		buf := make([]byte, 4096)
		for {
			must.OK(t, listener.SetReadDeadline(time.Now().Add(time.Minute)))
			n := must.Get(listener.Read(buf))(t)
			if line := string(buf[:n]); strings.HasPrefix(line, prefix) {
				return line
			}
		}
	}
}

// TestSupervision follows a service from its start to its end, as systemd sees it.
func TestSupervision(t *testing.T) {
	received := manager(t)
	t.Setenv("WATCHDOG_USEC", "300000")
	var s Supervision
	s.Starting("opening the database")
	if line := received(""); line != "STATUS=opening the database\nEXTEND_TIMEOUT_USEC=60000000" {
		t.Errorf("while it starts: %q", line)
	}
	s.Starting("updating the schema")
	if line := received(""); line != "STATUS=updating the schema" {
		t.Errorf("while it starts, later: %q", line)
	}
	var status atomic.Pointer[string]
	say := func(line string) { status.Store(&line) }
	say("serving")
	var alive atomic.Bool
	s.Say(func() string { return *status.Load() }, alive.Load)
	if line := received(""); line != "READY=1\nSTATUS=serving" {
		t.Errorf("ready: %q", line)
	}
	say("serving more")
	if line := received(""); line != "STATUS=serving more" { // without the watchdog's signal
		t.Errorf("a new status: %q", line)
	}
	alive.Store(true)
	received("WATCHDOG=1")
	s.Reload(func() { say("reloaded") })
	if line := received("RELOADING=1"); !strings.Contains(line, "\nMONOTONIC_USEC=") {
		t.Errorf("a reload: %q", line)
	}
	if line := received("READY=1"); line != "READY=1\nSTATUS=reloaded" {
		t.Errorf("after a reload: %q", line)
	}
	s.Stopping(7 * time.Second)
	received("STOPPING=1")
	if line := received(""); line != "EXTEND_TIMEOUT_USEC=7000000" {
		t.Errorf("while it stops: %q", line)
	}
	s.Close()
}

// TestSupervisionOfAFailedStart checks that a service that never was ready does not report that it stops.
func TestSupervisionOfAFailedStart(t *testing.T) {
	received := manager(t)
	var s Supervision
	s.Starting("opening the database")
	received("STATUS=")
	s.Close()
	var next Supervision
	next.Say(func() string { return "next" }, nil)
	if line := received(""); line != "READY=1\nSTATUS=next" {
		t.Errorf("got %q", line)
	}
	next.Close()
}
