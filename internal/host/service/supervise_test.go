package service

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/sys/initsystem"
)

// manager listens in place of a service manager. received returns the messages that it has
// received.
func manager(t *testing.T) (received func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
		t.Helper()
		buf := make([]byte, 4096)
		must(t, listener.SetReadDeadline(time.Now().Add(time.Minute)))
		n, err := listener.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
}

func TestServiceWaitsForItsConfiguration(t *testing.T) {
	received := manager(t)
	path := settings(t, "# nothing yet\n")
	load := func() (*config.Config, error) {
		return config.Load(config.LoadOptions{Path: path, TempDir: t.TempDir(), UID: os.Geteuid()})
	}
	s := &initsystem.Supervision{}
	type result struct {
		c   *config.Config
		err error
	}
	done := make(chan result, 1)
	go func() {
		c, err := AwaitConfiguration(t.Context(), load, s)
		done <- result{c, err}
	}()
	if line := received(); !strings.HasPrefix(line, "READY=1\n") || !strings.Contains(line, "customer-managed-workflow-agent configure") {
		t.Errorf("received %q", line)
	}
	// The wait continues while the file is incomplete.
	for _, text := range []string{"token\n", "token: pul-1\n"} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	select {
	case r := <-done:
		if r.err != nil || r.c.Token.Reveal() != "pul-1" {
			t.Errorf("got %v, %v", r.c, r.err)
		}
	case <-time.After(time.Minute):
		t.Fatal("still waiting")
	}
	s.Close()
	if line := received(); line != "STOPPING=1" {
		t.Errorf("received %q", line)
	}
}

func TestServiceStopsWaiting(t *testing.T) {
	received := manager(t)
	load := func() (*config.Config, error) { return &config.Config{}, nil }
	ctx, cancel := context.WithCancel(t.Context())
	s := &initsystem.Supervision{}
	defer s.Close()
	done := make(chan error, 1)
	go func() {
		_, err := AwaitConfiguration(ctx, load, s)
		done <- err
	}()
	received()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("got %v", err)
	}
}

func TestManualStartDoesNotWait(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	load := func() (*config.Config, error) { return &config.Config{}, nil }
	c, err := AwaitConfiguration(t.Context(), load, &initsystem.Supervision{})
	if c == nil || err != nil {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestLoadEnvironment(t *testing.T) {
	path := settings(t, "# proxies\nWORKFLOW_TEST_A=\"one two\"\nWORKFLOW_TEST_B=from-file\n")
	t.Setenv("WORKFLOW_TEST_B", "set before")
	t.Cleanup(func() { os.Unsetenv("WORKFLOW_TEST_A") })
	must(t, LoadEnvironment(path))
	if a, b := os.Getenv("WORKFLOW_TEST_A"), os.Getenv("WORKFLOW_TEST_B"); a != "one two" || b != "set before" {
		t.Errorf("got %q and %q", a, b)
	}
	if err := LoadEnvironment(filepath.Join(t.TempDir(), "absent")); err != nil {
		t.Error(err)
	}
	if err := LoadEnvironment(settings(t, "nonsense secret\n")); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func settings(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
