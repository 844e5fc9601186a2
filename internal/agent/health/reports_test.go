package health

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/status"
)

func TestReports(t *testing.T) {
	path := t.TempDir() + "/agent.yaml"
	if err := os.WriteFile(path, []byte("token: pul-secret-token\npolling_interval: 7s\nstate_directory: "+t.TempDir()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.LoadOptions{Path: path, UID: os.Geteuid()})
	if err != nil {
		t.Fatal(err)
	}
	tracker := NewTracker(time.Hour)
	monitor := Monitor{Tracker: tracker, Metrics: NewMetrics("v1.0.0")}
	monitor.Activity()
	monitor.EngineState(errors.New("the engine does not answer"))
	r := Reports(func() status.Report { return status.Report{Problems: []string{"its own"}} }, tracker, c)()
	settings := map[string]string{}
	for _, s := range r.Config {
		settings[s.Key] = s.Value
		if strings.Contains(s.Value, "secret") {
			t.Errorf("the report contains the token: %+v", s)
		}
	}
	if settings["config"] != path || settings["polling_interval"] != "7s" || settings["max_concurrent_jobs"] != "1" || settings["single_run"] != "" {
		t.Errorf("the settings are %v", settings)
	}
	if !r.Healthy || len(r.Problems) < 2 || !strings.Contains(strings.Join(r.Problems, "\n"), "the engine does not answer") {
		t.Errorf("healthy is %v, the problems are %q", r.Healthy, r.Problems)
	}
	if r.Storage.Directory != c.StateDirectory || r.Storage.FreeBytes <= 0 {
		t.Errorf("the storage is %+v", r.Storage)
	}
	monitor.EngineState(nil)
	if r := Reports(func() status.Report { return status.Report{} }, tracker, c)(); strings.Contains(strings.Join(r.Problems, "\n"), "engine") {
		t.Errorf("the problem remains: %q", r.Problems)
	}
}
