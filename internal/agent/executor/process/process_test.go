package process

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/executortest"
	"workflowagent/internal/sys/procs"
)

func newExecutor(t testing.TB, runner, base string) *Executor {
	t.Helper()
	log := logrus.New()
	log.SetOutput(t.Output())
	e, err := New(Options{RunnerPath: runner, BaseDir: base, Workspaces: filepath.Join(base, "workspaces"), Log: logrus.NewEntry(log)})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func buildRunner(t testing.TB) string {
	t.Helper()
	runner, err := executortest.BuildRunner(t.TempDir(), executor.RunnerName)
	if err != nil {
		t.Fatal(err)
	}
	return runner
}

func handleDir(t testing.TB, h executor.Handle) dir {
	t.Helper()
	var data handleData
	if err := json.Unmarshal(h.Data, &data); err != nil {
		t.Fatal(err)
	}
	return dir(data.Dir)
}

func leftovers(t testing.TB, d dir) []string {
	t.Helper()
	var out []string
	matches, err := filepath.Glob(filepath.Join(filepath.Dir(string(d)), "*"+filepath.Base(string(d))+"*"))
	if err != nil {
		t.Fatal(err)
	}
	out = append(out, matches...)
	all, err := procs.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if !p.Zombie && carries(p.PID, d.marker()) {
			out = append(out, fmt.Sprint("process ", p.PID))
		}
	}
	return out
}

func TestConformance(t *testing.T) {
	t.Setenv("PULUMI_AGENT_TOKEN", executortest.AgentSecret)
	runner, base := buildRunner(t), t.TempDir()
	executortest.Run(t, executortest.Place{
		Workspaces: true,
		Open:       func(t *testing.T) executor.Executor { return newExecutor(t, runner, base) },
		Spec:       func(*testing.T) executor.Spec { return executor.Spec{OS: "linux"} },
		BadSpec: func(*testing.T) executor.Spec {
			return executor.Spec{OS: "plan9"}
		},
		Visible: func(t *testing.T, h executor.Handle) string {
			id, err := handleDir(t, h).process()
			if err != nil {
				t.Fatal(err)
			}
			var seen strings.Builder
			for _, name := range []string{"cmdline", "environ"} {
				b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", id.PID, name))
				if err != nil {
					t.Fatal(err)
				}
				seen.Write(b)
			}
			return seen.String()
		},
		Leftovers: func(t *testing.T, h executor.Handle) []string { return leftovers(t, handleDir(t, h)) },
		LeftoversOf: func(t *testing.T, spec executor.Spec) []string {
			return leftovers(t, dir(filepath.Join(base, executor.ObjectName(spec.Owner, spec.JobID, spec.Epoch))))
		},
	})
}

func testContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 2*time.Minute)
}
