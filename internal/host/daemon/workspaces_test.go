package daemon

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor/workspacedir"
	"workflowagent/internal/dev/must"
)

// TestWorkspaceSettings applies each setting to three workspaces of 2 MiB, which were used now, an hour
// and a day ago.
func TestWorkspaceSettings(t *testing.T) {
	for setting, want := range map[string]string{
		"":                       "a b c",
		"WORKSPACE_MAX_SIZE=5m":  "a b",
		"WORKSPACE_MAX_AGE=100m": "a b",
		"WORKSPACES=false":       "",
	} {
		state := t.TempDir()
		environ := []string{"PULUMI_AGENT_STATE_DIRECTORY=" + state}
		if setting != "" {
			environ = append(environ, "PULUMI_AGENT_"+setting)
		}
		c := must.Get(config.Load(config.LoadOptions{Environ: environ}))(t)
		dir := workspacedir.New(workspaceDir(c), func() (map[string]bool, error) { return nil, nil })
		for digit, age := range map[string]time.Duration{"a": 0, "b": time.Hour, "c": 24 * time.Hour} {
			path := must.Get(dir.Make(t.Context(), strings.Repeat(digit, 64)))(t)
			must.OK(t, os.WriteFile(filepath.Join(path, "file"), make([]byte, 2<<20), 0o600))
			at := time.Now().Add(-age)
			must.OK(t, os.Chtimes(path, at, at))
		}
		quiet := logrus.New()
		quiet.SetOutput(io.Discard)
		must.Get(newKeeper(c, dir, "owner", logrus.NewEntry(quiet)).Prune(t.Context(), false))(t)
		var left []string
		for _, w := range must.Get(dir.Workspaces(t.Context(), ""))(t) {
			left = append(left, w.Scope[:1])
		}
		if got := strings.Join(left, " "); len(got) != len(want) || strings.Trim(got, want) != "" {
			t.Errorf("with %q, %q remain, want %q", setting, got, want)
		}
	}
}
