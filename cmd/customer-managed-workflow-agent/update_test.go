package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"workflowagent/internal/host/release"
	"workflowagent/internal/host/update"
)

// TestUpdateMistakes: an impossible release or service is refused before any search.
func TestUpdateMistakes(t *testing.T) {
	for _, args := range [][]string{{"--version", "1.2.3"}, {"--version", ""}, {"--check", "--version", "../x"}, {"--service", "a b"}} {
		out, code, err := execute(t, append([]string{"update"}, args...)...)
		if code != exitUsage || err == nil || errors.Is(err, release.ErrNoKeys) {
			t.Errorf("update %q says %q, %d, %v", args, out, code, err)
		}
	}
}

// TestUpdateCheckAnswers: the answer omits unknown values, and its advice works.
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
		{"", newer, own, "v1.1.0 is available (running v1.0.0). To install: customer-managed-workflow-agent update\n", exitNewer},
		{"v1.1.0", newer, own, "v1.1.0 is available (running v1.0.0). To install: customer-managed-workflow-agent update --version v1.1.0\n", exitNewer},
		{"", packaged, update.Installation{}, "v1.1.0 is available (running v1.0.0). To install: sudo apt-get upgrade it\n", exitNewer},
		{"", newer, update.Installation{}, "v1.1.0 is available (running v1.0.0). To install: install.sh, or replace this program by hand\n", exitNewer},
		{"", updateAnswer{Version: "v1.1.0", Available: "v1.1.0"}, own, "v1.1.0 is the newest release.\n", exitOK},
		{"v0.9.0", updateAnswer{Version: "v1.1.0", Available: "v0.9.0"}, own, "v0.9.0 is available, and is not newer than the running v1.1.0.\n", exitOK},
	} {
		var out strings.Builder
		u := updateCommand{want: tt.want, stdout: &out}
		if err := u.answerCheck(tt.answer, tt.install); exitCode(err) != tt.code || out.String() != tt.says {
			t.Errorf("got %q, %v, want %q, %d", out.String(), err, tt.says, tt.code)
		}
	}
}

// TestUpdatesWithoutKeys: a build from source says why it cannot update itself when configured to.
func TestUpdatesWithoutKeys(t *testing.T) {
	p := newPlane(t, false)
	a := p.runAgent(t, "auto_update=true")
	a.until("says that it has no keys", func() bool {
		return strings.Contains(a.stderr.String(), "auto_update has no effect: this build has no release key")
	})
	out, code, err := execute(t, "update", "--check", "--config", configFile(t, "token: pul-secret-token\n"))
	if code != exitFailed || err == nil || !errors.Is(err, release.ErrNoKeys) {
		t.Errorf("update --check says %q, %d, %v", out, code, err)
	}
}

func TestProgressOfADownload(t *testing.T) {
	var out bytes.Buffer
	p := &progress{out: &out, what: "v1.1.0", shown: -1}
	for _, done := range []int64{0, 1, 20 << 20, 20<<20 + 1, 40 << 20} {
		p.show(done, 40<<20)
	}
	p.end()
	want := "\rDownloading v1.1.0:   0 % of 40 MiB\rDownloading v1.1.0:  50 % of 40 MiB\rDownloading v1.1.0: 100 % of 40 MiB\n"
	if out.String() != want {
		t.Errorf("got %q", out.String())
	}
	out.Reset()
	p = newProgress(&out, "v1.1.0") // not a terminal
	p.show(1, 2)
	p.end()
	if out.Len() > 0 {
		t.Errorf("got %q", out.String())
	}
}
