package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// TestFaultEachJobRunsOnce lets two agents share a queue while claims are lost on the wire: 500
// jobs at full scale, fewer with the short timers of CI.
func TestFaultEachJobRunsOnce(t *testing.T) {
	ctx := t.Context()
	const stacks = 25
	perStack := 4
	if os.Getenv("WORKFLOW_E2E_FULL") != "" {
		perStack = 20
	}
	w := harness.StartSite(t, "")
	ledger := filepath.Join(w.Dir, "ledger")
	stub := stubPulumi(t, `printf '%s\n' "$PULUMI_CI_BUILD_ID" >>`+ledger)
	proxy := startProxy(t, w.Host(), w.Server.URL)
	proxy.spoilClaims(func(nth int) bool { return nth%7 == 0 }, lose)
	repo := w.Repo(ctx, t)
	must.OK(t, w.MakePool(ctx))
	type queued struct {
		s *harness.Stack
		d harness.Deployment
	}
	var all []queued
	for i := range stacks {
		s := w.NewStack(ctx, t, "box", "s"+strconv.Itoa(i), "", nil)
		for range perStack {
			all = append(all, queued{s, s.Deploy(ctx, t, "update", repo.URL)})
		}
	}
	w.AgentURL = proxy.URL
	for range 2 {
		must.Get(w.StartAgent(ctx, "process", map[string]string{"max_concurrent_jobs": "4"}, "PATH="+stub+":"+os.Getenv("PATH")))(t)
	}
	for _, q := range all {
		if d := q.s.Wait(ctx, t, q.d, 10*time.Minute, "succeeded", "failed", "skipped"); d.Status != "succeeded" {
			t.Fatalf("deployment %s/%d: %+v\n%s", q.s.Name, d.Version, d, q.s.Log(ctx, t, q.d))
		}
	}
	if proxy.spoiltClaims() == 0 {
		t.Error("the proxy dropped no claim, so this test showed nothing")
	}
	runs := countLines(t, ledger)
	for _, q := range all {
		if n := runs[q.d.ID]; n != 1 {
			t.Errorf("deployment %d of %s ran %d times", q.d.Version, q.s.Name, n)
		}
	}
	if len(runs) != len(all) {
		t.Errorf("%d deployments ran, %d were queued", len(runs), len(all))
	}
	t.Logf("%d jobs, %d claims lost on the wire", len(all), proxy.spoiltClaims())
}

func children(t *testing.T, pid int) []int {
	t.Helper()
	var pids []int
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(tasks) == 0 {
		t.Skip("this system does not list the children of a process")
	}
	for _, task := range tasks {
		data, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		for field := range strings.FieldsSeq(string(data)) {
			child := must.Get(strconv.Atoi(field))(t)
			pids = append(pids, child)
		}
	}
	if len(pids) == 0 {
		t.Fatal("the agent has no runner")
	}
	return pids
}
