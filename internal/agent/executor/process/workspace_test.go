package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/must"
)

// TestRunsWithoutWorkspace runs jobs whose workspace is unavailable when they are prepared, or only when
// they start. Each runs without one, and never in another.
func TestRunsWithoutWorkspace(t *testing.T) {
	runner := buildRunner(t)
	scope, other := strings.Repeat("a", 64), strings.Repeat("b", 64)
	for name, plant := range map[string]func(t *testing.T, dir string){
		"another workspace in its place": func(t *testing.T, dir string) {
			must.OK(t, os.MkdirAll(filepath.Join(dir, other), 0o700))
			must.OK(t, os.Symlink(other, filepath.Join(dir, scope)))
		},
		"parent that is a file": func(t *testing.T, dir string) {
			must.OK(t, os.WriteFile(dir, nil, 0o600))
		},
		"parent of other users": func(t *testing.T, dir string) {
			must.OK(t, os.Mkdir(dir, 0o700))
			must.OK(t, os.Chmod(dir, 0o777))
		},
	} {
		for _, when := range []string{"before it is prepared", "before it starts"} {
			t.Run(name+" "+when, func(t *testing.T) {
				base := t.TempDir()
				dir := filepath.Join(base, "workspaces")
				e := newExecutor(t, runner, base)
				defer e.Close()
				if when == "before it is prepared" {
					plant(t, dir)
				}
				var lines strings.Builder
				spec := executor.Spec{JobID: "job", Epoch: 1, Owner: "owner", Workspace: scope}
				h := must.Get(e.Prepare(t.Context(), spec, func(line string) { lines.WriteString(line + "\n") }))(t)
				if when == "before it starts" {
					must.OK(t, os.RemoveAll(dir))
					plant(t, dir)
				} else if !strings.Contains(lines.String(), "Running without a workspace: ") {
					t.Errorf("Prepare reports only\n%s", lines.String())
				}
				must.OK(t, e.Start(t.Context(), h, []byte(`{"actions":[{"workspace":"file"}]}`)))
				exit := must.Get(e.Wait(t.Context(), h))(t)
				output, err := os.ReadFile(handleDir(t, h).path(fileOutput))
				if err != nil || exit.Code != 0 || string(output) != "no workspace\n" {
					t.Errorf("the job ended with %+v and printed %q, %v", exit, output, err)
				}
				must.OK(t, e.Remove(t.Context(), h))
				if entries, err := os.ReadDir(filepath.Join(dir, other)); err == nil && len(entries) > 0 {
					t.Errorf("the other workspace contains %v", entries)
				}
			})
		}
	}
}
