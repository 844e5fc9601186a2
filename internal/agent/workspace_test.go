package agent_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/workspacedir"
	"workflowagent/internal/agent/workspace"
	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/workflow"
)

func inWorkspace(scope string) func(*fakes.ServerJob) {
	return func(j *fakes.ServerJob) {
		j.Definition.Deployment = &workflow.Deployment{
			Organization: "acme", Project: "shop", Stack: "prod", Workspace: &workflow.Workspace{Scope: scope, Key: "k"},
		}
	}
}

// TestWorkspaceOfAJob checks which workspace the executor receives, and what the agent records.
func TestWorkspaceOfAJob(t *testing.T) {
	given := strings.Repeat("ab", 32)
	for name, test := range map[string]struct {
		on    bool
		scope string
		want  bool
	}{
		"on":          {true, given, true},
		"off":         {false, given, false},
		"no scope":    {true, "", false},
		"not a scope": {true, "../../" + given[6:], false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHarness(t)
			dir := filepath.Join(w.state, "workspaces")
			w.executor.OnRun(w.runner(workflow.StatusSucceeded))
			w.options = func(o *agent.Options) {
				o.Workspaces = test.on
				o.Keeper = newKeeper(dir, workspace.Limits{Bytes: 1 << 30, Age: time.Hour})
			}
			job := w.server.Add(inWorkspace(test.scope))
			w.finish(job)
			want := ""
			if test.want {
				want = executor.LocalScope(w.server.URL, test.scope)
			}
			if got := w.executor.Record(job.ID).Spec.Workspace; got != want {
				t.Errorf("the workspace is %q, want %q", got, want)
			}
			record, err := os.ReadFile(filepath.Join(dir, want+".json"))
			if test.want != (err == nil) || err == nil && !strings.Contains(string(record), "acme/shop/prod") {
				t.Errorf("the record is %q, %v", record, err)
			}
		})
	}
	if executor.LocalScope("https://a", given) == executor.LocalScope("https://b", given) {
		t.Error("jobs of two servers share a workspace")
	}
}

func newKeeper(dir string, limits workspace.Limits) *workspace.Keeper {
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	return workspace.New(workspace.Options{
		Place: fullDisk{workspacedir.New(dir, func() (map[string]bool, error) { return nil, nil })},
		Dir:   dir, Limits: limits, Log: logrus.NewEntry(quiet),
	})
}

// fullDisk is a directory of workspaces on a disk without space.
type fullDisk struct{ *workspacedir.Dir }

func (fullDisk) WorkspaceSpace(context.Context) int64 { return 0 }

// TestFullDiskRemovesWorkspaces starts an agent whose disk is filled by workspaces. One of them is in use.
func TestFullDiskRemovesWorkspaces(t *testing.T) {
	w := newHarness(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	dir := filepath.Join(w.state, "workspaces")
	used := strings.Repeat("a", 64)
	made := workspacedir.New(dir, func() (map[string]bool, error) { return nil, nil })
	for _, digit := range []string{"a", "b", "c"} {
		must.Get(made.Make(t.Context(), strings.Repeat(digit, 64)))(t)
	}
	left := func() (n int64) {
		for _, entry := range must.Get(os.ReadDir(dir))(t) {
			if workflow.IsScope(entry.Name()) {
				n++
			}
		}
		return n
	}
	w.options = func(o *agent.Options) {
		quiet := logrus.New()
		quiet.SetOutput(io.Discard)
		place := fullDisk{workspacedir.New(dir, func() (map[string]bool, error) { return map[string]bool{used: true}, nil })}
		o.Keeper = workspace.New(workspace.Options{Place: place, Dir: dir, Limits: workspace.Limits{Bytes: 1 << 30, Age: time.Hour}, Log: logrus.NewEntry(quiet)})
		o.FreeSpace = func(string) (int64, error) { return executor.LeastSpace + 1 - left(), nil }
	}
	job := w.server.Add()
	w.finish(job)
	if job.Status != workflow.StatusSucceeded || strings.Contains(w.log.String(), "claims no jobs until the disk") {
		t.Errorf("the job is %s", job.Status)
	}
	if _, err := os.Stat(filepath.Join(dir, used)); err != nil || left() != 1 {
		t.Errorf("%d workspaces remain, %v", left(), err)
	}
}
