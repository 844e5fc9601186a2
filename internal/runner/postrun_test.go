package runner_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/workflow"
)

// TestPostRunCommands checks which post-run commands run after a job, and how they decide its result.
func TestPostRunCommands(t *testing.T) {
	all := []workflow.PostRunCommand{
		{Command: "echo always >>$CALLS", When: workflow.WhenAlways},
		{Command: "echo success >>$CALLS", When: workflow.WhenSuccess},
		{Command: "echo failure >>$CALLS", When: workflow.WhenFailure},
		{Command: "echo last >>$CALLS"},
	}
	fails := append([]workflow.PostRunCommand{{Command: "echo fails >>$CALLS; exit 7", When: workflow.WhenAlways}}, all...)
	const wait = "echo ready; while :; do sleep 0.01; done"
	for _, tt := range []struct {
		name, step string
		commands   []workflow.PostRunCommand
		act        func(h *harness)
		calls      string
		code       int
		reason     workflow.Reason
		message    string
	}{
		{"success", "true", all, nil, "always success last", 0, "", ""},
		{"failure", "exit 3", all, nil, "always failure last", 3, workflow.ReasonExitCode, "Step exited with code 3"},
		{"a failed command", "true", fails, nil, "fails always success last", 7, workflow.ReasonExitCode, "Post-run command 1 exited with code 7"},
		{"a failed command after a failure", "exit 3", fails, nil, "fails always failure last", 3, workflow.ReasonExitCode, "Step exited with code 3"},
		{"cancellation", wait, all, func(h *harness) { h.server.Update(func() { h.job.Cancel = true }) }, "always last", 130, workflow.ReasonCancelled, "cancelled"},
		{"forced cancellation", wait, all, func(h *harness) { h.server.Update(func() { h.job.Cancel, h.job.Force = true, true }) }, "", 137, workflow.ReasonCancelled, "cancelled"},
		{"the host is stopped", wait, all, func(h *harness) { h.signals <- os.Interrupt }, "", 130, workflow.ReasonEvicted, ""},
		{"a variable of the job", `echo "A=1" >>$PULUMI_ENV`, []workflow.PostRunCommand{{Command: "echo a$A >>$CALLS"}}, nil, "a1", 0, "", ""},
		{"a command that takes too long", "true", []workflow.PostRunCommand{{Command: "echo begins >>$CALLS; sleep 600"}, {Command: "echo next >>$CALLS"}}, nil, "begins", 130, workflow.ReasonTimeout, "took longer than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := deployment(shellSteps(tt.step), workflow.OperationPreview)
			d.Deployment.PostRunCommands = tt.commands
			h := newHarness(t, d)
			calls := filepath.Join(t.TempDir(), "calls")
			h.environ = append(h.environ, "CALLS="+calls)
			h.timing.PostRun = time.Minute
			if strings.Contains(tt.name, "too long") {
				h.timing.PostRun = 300 * time.Millisecond
			}
			if tt.act != nil {
				h.whenReady(func() { tt.act(h) })
			}
			_, _ = h.run()
			got, err := os.ReadFile(calls)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			slow := tt.reason == workflow.ReasonTimeout && len(got) == 0 // it was interrupted before its first line
			if text := strings.Join(strings.Fields(string(got)), " "); text != tt.calls && !slow {
				t.Errorf("these commands ran: %q, want %q", text, tt.calls)
			}
			r := h.oneResult()
			succeeded := r.Status == workflow.StatusSucceeded
			if succeeded != (tt.code == 0) || r.Reason != tt.reason || !strings.Contains(r.Message, tt.message) {
				t.Errorf("the result is %s, %s: %s", r.Status, r.Reason, r.Message)
			}
			if tt.name == "success" && strings.Join(h.job.Statuses[len(h.job.Statuses)-3:], ", ") != "4 skipped, 5 running, 5 succeeded" {
				t.Errorf("the runner reports %q", h.job.Statuses)
			}
			skipped := 0
			for i := range tt.commands {
				if strings.HasSuffix(h.text(2+i), "\n") && strings.HasPrefix(h.text(2+i), "skipped: ") {
					skipped++
				}
			}
			if want := len(tt.commands) - len(strings.Fields(tt.calls)); skipped != want && !slow {
				t.Errorf("%d logs of commands say that they are skipped, want %d", skipped, want)
			}
		})
	}
}

// TestPostRunCredentials checks that a post-run command gets fresh cloud credentials after a cancellation.
func TestPostRunCredentials(t *testing.T) {
	h, stand, _ := cloudJob(t, 15*time.Minute, `echo "$AWS_ACCESS_KEY_ID" >"$KEYS"; echo ready; while :; do sleep 0.01; done`)
	stand.Lifetime = 30 * time.Second // each command needs new ones
	keys := filepath.Join(t.TempDir(), "keys")
	h.environ = append(h.environ, "KEYS="+keys)
	h.launch.Definition.Deployment.PostRunCommands = []workflow.PostRunCommand{{Command: `echo "$AWS_ACCESS_KEY_ID" >>"$KEYS"`}}
	go func() {
		h.server.WaitFor("the output", func() bool { return h.job.Has(2, "ready") })
		h.server.Update(func() { h.job.Cancel = true })
	}()
	_, _ = h.run()
	got, err := os.ReadFile(keys)
	if list := strings.Fields(string(got)); err != nil || len(list) != 2 || list[0] == list[1] || !strings.HasPrefix(list[1], "ASIA") {
		t.Errorf("the commands get the keys %q, %v", list, err)
	}
	if strings.Contains(h.text(3), "could not be renewed") {
		t.Errorf("the post-run command says %q", h.text(3))
	}
}
