package runner_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"workflowagent/internal/workflow"
)

// TestCompression checks that the runner compresses a log that it sends over a network, but not one
// that it sends to the same machine.
func TestCompression(t *testing.T) {
	for host, want := range map[string]bool{"127.0.0.1": false, "0.0.0.0": true} {
		t.Run(host, func(t *testing.T) {
			h := newHarness(t, shellSteps(`i=0; while [ $i -lt 2000 ]; do echo "line $i of many"; i=$((i+1)); done`))
			h.launch.ServiceURL = strings.Replace(h.server.URL, "127.0.0.1", host, 1)
			var packed atomic.Bool
			h.server.OnFault(func(_ http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "/log") && r.Header.Get("Content-Encoding") == "zstd" {
					packed.Store(true)
				}
				return false
			})
			if code, left := h.run(); code != 0 || left.Status != workflow.StatusSucceeded {
				t.Fatalf("got %d, %+v", code, left)
			}
			h.wantLog(1, "line 0 of many\n", "line 1999 of many\n")
			if packed.Load() != want {
				t.Errorf("compressed: %v, want %v", packed.Load(), want)
			}
		})
	}
}
