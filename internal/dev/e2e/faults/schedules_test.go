package faults

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// TestSchedulesSurviveKills kills two servers on one database, one after the other, while schedules
// are due. Each schedule must fire exactly once.
func TestSchedulesSurviveKills(t *testing.T) {
	if reason := needsPostgres(); reason != "" {
		t.Skip(reason)
	}
	const schedules = 40
	args := onPostgres(t, t.TempDir())
	site := harness.StartSite(t, "", args...)
	second := startReplica(t, site, args)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	call := func(s *lab.Server, method, path string, in, out any) {
		t.Helper()
		must.OK(t, s.Call(ctx, method, path, in, out))
	}
	org := site.Server.Organization
	path := func(i int) string { return fmt.Sprintf("/api/stacks/%s/quick/s%d/deployments", org, i) }
	for i := range schedules {
		call(site.Server, http.MethodPost, fmt.Sprintf("/api/stacks/%s/quick", org), map[string]any{"stackName": fmt.Sprint("s", i)}, nil)
		call(site.Server, http.MethodPut, path(i)+"/settings", map[string]any{}, nil)
	}
	// The server refuses schedules in the past, so the time must be after the last of these requests.
	due := time.Now().Add(20 * time.Second).UTC().Format(time.RFC3339)
	ids := make([]string, schedules)
	for i := range ids {
		var made struct{ ID string }
		call(site.Server, http.MethodPost, path(i)+"/schedules", map[string]any{"scheduleOnce": due, "request": map[string]any{"operation": "update"}}, &made)
		ids[i] = made.ID
	}
	// fired waits until at least n deployments exist.
	fired := func(s *lab.Server, n int64) {
		t.Helper()
		err := harness.Until(ctx, func() (bool, error) {
			var list struct{ Total int64 }
			err := s.Call(ctx, http.MethodGet, "/api/orgs/"+org+"/deployments?pageSize=1", nil, &list)
			return list.Total >= n, err
		})
		if err != nil {
			t.Fatalf("waiting for %d deployments: %v", n, err)
		}
	}
	kill := func(s *lab.Server) {
		t.Helper()
		must.OK(t, s.Process.Stop(syscall.SIGKILL, patience))
	}
	fired(second, 1)
	kill(site.Server)
	fired(second, schedules/2)
	kill(second)
	must.OK(t, site.RestartServer(ctx))
	fired(site.Server, schedules)
	for i, id := range ids {
		path := fmt.Sprintf("/api/stacks/%s/quick/s%d/deployments", org, i)
		var list struct{ Total int64 }
		call(site.Server, http.MethodGet, path, nil, &list)
		var history struct {
			ScheduleHistoryEvents []struct{ Result string }
		}
		call(site.Server, http.MethodGet, path+"/schedules/"+id+"/history", nil, &history)
		if e := history.ScheduleHistoryEvents; list.Total != 1 || len(e) != 1 || e[0].Result != "succeeded" {
			t.Errorf("stack s%d has %d deployments, and its schedule the history %+v", i, list.Total, e)
		}
	}
}
