package upkeep

import (
	"bytes"
	"testing"

	"workflowagent/internal/host/update"
)

// TestUpdateCheckAnswers checks that the answer omits unknown values, and that the command in its
// advice is correct.
func TestUpdateCheckAnswers(t *testing.T) {
	own := update.Installation{Root: "/opt/agent"}
	newer := Answer{Version: "v1.0.0", Available: "v1.1.0", Newer: true}
	packaged := newer
	packaged.Command = "sudo apt-get upgrade it"
	for _, tt := range []struct {
		want    string
		answer  Answer
		install update.Installation
		says    string
	}{
		{"", newer, own, "v1.1.0 is available (running v1.0.0). To install: customer-managed-workflow-agent update"},
		{"v1.1.0", newer, own, "v1.1.0 is available (running v1.0.0). To install: customer-managed-workflow-agent update --version v1.1.0"},
		{"", packaged, update.Installation{}, "v1.1.0 is available (running v1.0.0). To install: sudo apt-get upgrade it"},
		{"", newer, update.Installation{}, "v1.1.0 is available (running v1.0.0). To install: install.sh, or replace this program by hand"},
		{"", Answer{Version: "v1.1.0", Available: "v1.1.0"}, own, "v1.1.0 is the newest release."},
		{"v0.9.0", Answer{Version: "v1.1.0", Available: "v0.9.0"}, own, "v0.9.0 is available, but is not newer than the running v1.1.0."},
	} {
		m := Manual{Want: tt.want}
		if got := m.describe(tt.answer, tt.install); got != tt.says {
			t.Errorf("got %q, want %q", got, tt.says)
		}
	}
}

func TestProgressOfADownload(t *testing.T) {
	var out bytes.Buffer
	p := &progress{out: &out, what: "v1.1.0", shown: -1}
	for _, done := range []int64{0, 1, 20 << 20, 20<<20 + 1, 40 << 20} {
		p.show(done, 40<<20)
	}
	p.finish()
	want := "\rDownloading v1.1.0:   0 % of 40 MiB\rDownloading v1.1.0:  50 % of 40 MiB\rDownloading v1.1.0: 100 % of 40 MiB\n"
	if out.String() != want {
		t.Errorf("got %q", out.String())
	}
	out.Reset()
	p = newProgress(&out, "v1.1.0") // not a terminal
	p.show(1, 2)
	p.finish()
	if out.Len() > 0 {
		t.Errorf("got %q", out.String())
	}
}
