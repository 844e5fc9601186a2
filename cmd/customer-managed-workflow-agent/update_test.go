package main

import (
	"errors"
	"strings"
	"testing"

	"workflowagent/internal/host/release"
	"workflowagent/internal/host/update"
)

// TestUpdateMistakes: a release or service that cannot be is refused before anything is looked for.
func TestUpdateMistakes(t *testing.T) {
	for _, args := range [][]string{{"--version", "1.2.3"}, {"--version", ""}, {"--check", "--version", "../x"}, {"--service", "a b"}} {
		out, code, err := execute(t, append([]string{"update"}, args...)...)
		if code != exitUsage || err == nil || errors.Is(err, release.ErrNoKeys) {
			t.Errorf("update %q says %q, %d, %v", args, out, code, err)
		}
	}
}

// TestUpdateCheckAnswers: what is not known is not said, and what is advised works.
func TestUpdateCheckAnswers(t *testing.T) {
	own := update.Installation{Root: "/opt/agent"}
	newer := updateAnswer{Version: "v1.0.0", Available: "v1.1.0", Newer: true}
	packaged := newer
	packaged.Command = "sudo apt-get upgrade it"
	for _, tt := range []struct {
		want    string
		answer  updateAnswer
		install update.Installation
		says    string
		code    int
	}{
		{"", newer, own, "v1.1.0 is there (this is v1.0.0). Install it with: customer-managed-workflow-agent update\n", exitNewer},
		{"v1.1.0", newer, own, "v1.1.0 is there (this is v1.0.0). Install it with: customer-managed-workflow-agent update --version v1.1.0\n", exitNewer},
		{"", packaged, update.Installation{}, "v1.1.0 is there (this is v1.0.0). Install it with: sudo apt-get upgrade it\n", exitNewer},
		{"", newer, update.Installation{}, "v1.1.0 is there (this is v1.0.0). Install it with: install.sh, or replace this program by hand\n", exitNewer},
		{"", updateAnswer{Version: "v1.1.0", Available: "v1.1.0"}, own, "v1.1.0 is the newest release.\n", exitOK},
		{"v0.9.0", updateAnswer{Version: "v1.1.0", Available: "v0.9.0"}, own, "v0.9.0 is there, and is not newer than this, which is v1.1.0.\n", exitOK},
	} {
		var out strings.Builder
		u := updateCommand{want: tt.want, stdout: &out}
		if err := u.answerCheck(tt.answer, tt.install); exitCode(err) != tt.code || out.String() != tt.says {
			t.Errorf("got %q, %v, want %q, %d", out.String(), err, tt.says, tt.code)
		}
	}
}
