package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/dev/must"
)

// TestServeReloadsAtSIGHUP runs the server in this process and sends the signal to it.
func TestServeReloadsAtSIGHUP(t *testing.T) {
	settings := "data_dir: " + t.TempDir() + "\nlisten: 127.0.0.1:0\n"
	path := configFile(t, settings)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log, out := io.Pipe()
	root := newRootCommand("v1")
	root.SetOut(io.Discard)
	root.SetErr(out)
	root.SetArgs([]string{"serve", "--config", path})
	done := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		_ = out.Close() // ends the loop below
		done <- err
	}()
	var reloaded bool
	for lines := bufio.NewScanner(log); lines.Scan(); {
		line := lines.Text()
		switch {
		case strings.Contains(line, "msg=serving"):
			must.OK(t, os.WriteFile(path, []byte("lisen: x\n"), 0o600))
			must.OK(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		case strings.Contains(line, "was not reloaded"):
			if !strings.Contains(line, "did you mean listen?") {
				t.Errorf("got %s", line)
			}
			must.OK(t, os.WriteFile(path, []byte(settings+"log_format: json\n"), 0o600))
			must.OK(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		case strings.Contains(line, "reloaded the configuration"):
			reloaded = strings.HasPrefix(line, `{"applied":"log_format"`)
			cancel()
		}
	}
	if err := <-done; err != nil || !reloaded {
		t.Errorf("reloaded: %t, %v", reloaded, err)
	}
}
