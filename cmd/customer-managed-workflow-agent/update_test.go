package main

import (
	"errors"
	"strings"
	"testing"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/host/release"
)

// TestUpdateMistakes checks that an invalid release or service is rejected before update searches
// for releases.
func TestUpdateMistakes(t *testing.T) {
	for _, args := range [][]string{{"--version", "1.2.3"}, {"--version", ""}, {"--check", "--version", "../x"}, {"--service", "a b"}} {
		out, code, err := execute(t, append([]string{"update"}, args...)...)
		if code != program.ExitUsage || err == nil || errors.Is(err, release.ErrNoKeys) {
			t.Errorf("update %q says %q, %d, %v", args, out, code, err)
		}
	}
}

// TestUpdatesWithoutKeys checks that an agent that was built from source reports why it cannot
// update itself.
func TestUpdatesWithoutKeys(t *testing.T) {
	p := newPlane(t, false)
	a := p.runAgent(t, "auto_update=true")
	a.until("says that it has no keys", func() bool {
		return strings.Contains(a.stderr.String(), "auto_update has no effect: this build has no release key")
	})
	out, code, err := execute(t, "update", "--check", "--config", configFile(t, "token: pul-secret-token\n"))
	if code != program.ExitFailed || err == nil || !errors.Is(err, release.ErrNoKeys) {
		t.Errorf("update --check says %q, %d, %v", out, code, err)
	}
}
