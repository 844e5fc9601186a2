package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/protocol"
	"workflowagent/internal/reach"
)

// TestProbe checks that a launch with a probe runs no job and produces a report, and that the probe
// command prints the same report.
func TestProbe(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	const closed = "http://127.0.0.1:1/"
	dir := filepath.Join(t.TempDir(), "job")
	input, err := json.Marshal(protocol.Launch{
		ServiceURL: server.URL, JobID: "doctor", JobToken: "none",
		Probe: &protocol.Probe{URLs: []string{server.URL, closed}, Seconds: 10},
	})
	if err != nil {
		t.Fatal(err)
	}
	byLaunch := command(t, "run", "--job-dir", dir)
	byLaunch.Stdin = bytes.NewReader(input)
	byHand := command(t, "probe", server.URL, closed)
	for _, cmd := range []interface{ Output() ([]byte, error) }{byLaunch, byHand} {
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		var report reach.Report
		if err := json.Unmarshal(out, &report); err != nil || strings.Count(string(out), "\n") != 1 {
			t.Fatalf("%v: %s", err, out)
		}
		if len(report.Traces) != 2 || report.Version == "" || report.Traces[0].Code != 404 || report.Traces[1].Failed != reach.StageConnect {
			t.Errorf("got %s", out)
		}
	}
	if matches, _ := filepath.Glob(dir + "/*"); len(matches) > 0 {
		t.Errorf("the probe made %v", matches)
	}
}
