package stack_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// runAs runs an update with an access token, which reports its changes.
func (f *fixture) runAs(access, kind string, preview bool, changes m) {
	f.t.Helper()
	path := "/api/stacks/acme/web/prod/" + kind
	var made struct{ UpdateID string }
	var started struct{ Token string }
	for _, c := range []struct {
		path string
		body m
		out  any
	}{
		{path, m{"name": "web", "runtime": "go", "metadata": m{}, "options": m{"dryRun": preview}}, &made},
		{"", m{}, &started},
	} {
		if c.path == "" {
			c.path = path + "/" + made.UpdateID
		}
		if status, body := f.APIAs(access, http.MethodPost, c.path, c.body, c.out); status >= http.StatusMultipleChoices {
			f.t.Fatalf("POST %s: status %d: %s", c.path, status, body)
		}
	}
	update := path + "/" + made.UpdateID
	f.asUpdate(started.Token, update+"/events/batch", m{"events": []m{{"sequence": 0, "timestamp": 1, "summaryEvent": m{"resourceChanges": changes}}}})
	f.asUpdate(started.Token, update+"/complete", m{"status": "succeeded"})
}

var (
	driftRows   = regexp.MustCompile(`(?s)<tr>\s*<td>.*?</tr>`)
	driftNotice = regexp.MustCompile(`(?s)<div class="note.*?</div>`)
)

// TestDriftPage runs a detection and a remediation, and reads the runs and the status of the stack.
func TestDriftPage(t *testing.T) {
	f := newFixture(t)
	f.API(http.MethodPost, "/api/stacks/acme/web/prod/deployments/settings", m{"sourceContext": m{"git": m{"repoUrl": "https://git.example.com/web.git", "branch": "main"}}}, nil)
	pool := f.Pool()
	check := func(when, status string, runs ...string) {
		t.Helper()
		p := f.page(f.base + "/drift")
		if got := text(driftNotice.FindString(p.Body)); got != status {
			t.Errorf("%s, the status is %q, want %q", when, got, status)
		}
		rows := driftRows.FindAllString(p.Body, -1)
		if len(rows) != len(runs) {
			t.Fatalf("%s, the page lists %d runs, want %d: %s", when, len(rows), len(runs), text(p.Body))
		}
		for i, want := range runs {
			if got := text(rows[i]); !strings.HasPrefix(got, want) {
				t.Errorf("%s, run %d is %q, want %q", when, i, got, want)
			}
		}
	}
	check("before a run", "")

	detection := f.StartOperation(pool, "web", "prod", workflow.OperationDetectDrift)
	check("during the detection", "A detection is running.", "deployment #1 running running")
	f.runAs(detection.Token, "refresh", true, m{"update": 2, "delete": 1, "same": 4})
	exit := 1
	detection.Finish(protocol.ResultRequest{Status: workflow.StatusFailed, Reason: workflow.ReasonExitCode, ExitCode: &exit})
	const found = "deployment #1 succeeded drift: ~2 -1"
	check("after the detection", "The newest detection found resources that differ from the stack's state.", found)
	link := regexp.MustCompile(`href="([^"]+view=diff)"`).FindStringSubmatch(f.page(f.base + "/drift").Body)
	if link == nil {
		t.Fatal("the run has no link to its differences")
	}
	f.page(link[1])

	remediation := f.StartOperation(pool, "web", "prod", workflow.OperationRemediateDrift)
	f.runAs(remediation.Token, "update", false, m{"update": 3})
	remediation.Finish(protocol.ResultRequest{Status: workflow.StatusSucceeded})
	const remediated = "deployment #2 succeeded remediation"
	check("after the remediation", "The newest detection found no drift, or a deployment has remediated it.", remediated, found)

	clean := f.StartOperation(pool, "web", "prod", workflow.OperationDetectDrift)
	f.runAs(clean.Token, "refresh", true, m{"same": 7})
	clean.Finish(protocol.ResultRequest{Status: workflow.StatusSucceeded})
	check("after a clean detection", "The newest detection found no drift, or a deployment has remediated it.", "deployment #3 succeeded no drift", remediated, found)
}
