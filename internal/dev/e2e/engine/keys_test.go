package engine

import (
	"fmt"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// TestEngineKeys checks that a job sees the limits of the agent's settings.
func TestEngineKeys(t *testing.T) {
	ctx := t.Context()
	w, engine, image := harness.StartEngineSite(t, harness.OnBridge)
	settings := map[string]string{"pull_image": "false", "docker_memory": "320m", "docker_cpus": "0.73", "docker_pids_limit": "777"}
	must.Get(w.StartAgent(ctx, "docker", settings, "DOCKER_HOST="+engine.Host))(t)
	repo := w.Repo(ctx, t)
	s := w.NewStack(ctx, t, "box", "dev", image, nil)
	// The command reads the files of both control group versions.
	look := "for f in pids.max pids/pids.max memory.max memory/memory.limit_in_bytes cpu.max cpu/cpu.cfs_quota_us; do cat /sys/fs/cgroup/$f 2>/dev/null; done; true"
	d := s.Finish(ctx, t, s.Deploy(ctx, t, "update", repo.URL, look))
	log := s.Log(ctx, t, d)
	for key, want := range map[string]string{"docker_pids_limit": "777", "docker_memory": fmt.Sprint(320 << 20), "docker_cpus": "73000"} {
		if !strings.Contains(log, want) {
			t.Errorf("%s: the job does not see %s", key, want)
		}
	}
	if t.Failed() || d.Status != "succeeded" {
		t.Errorf("the deployment %+v\n%s", d, log)
	}
}
