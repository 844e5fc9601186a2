package waiting_test

import (
	"testing"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// TestJudge checks the sentence and the state of every outcome.
func TestJudge(t *testing.T) {
	start := time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)
	code := 255
	ended := func(status workflow.Status, reason workflow.Reason, message string) store.Job {
		return store.Job{
			Status: status, Reason: reason, Message: message, QueuedAt: start.Add(-time.Minute), ClaimedAt: start, StartedAt: start,
			EndedAt: start.Add(3*time.Minute + 12*time.Second),
		}
	}
	failed := ended(workflow.StatusFailed, workflow.ReasonExitCode, "")
	failed.Steps = []store.StepState{{Name: "set-up", Status: workflow.StepSucceeded}, {Name: "pulumi update", Status: workflow.StepFailed, ExitCode: &code}}
	byResult := ended(workflow.StatusFailed, workflow.ReasonExitCode, "")
	byResult.Results = []store.JobResult{{Result: protocol.ResultRequest{ExitCode: &code}}}
	unstarted := store.Job{Status: workflow.StatusSkipped, Reason: workflow.ReasonCancelled, Message: "Cancelled by ada.", EndedAt: start}
	running := store.Job{Status: workflow.StatusRunning, ClaimedAt: start, StartedAt: start, Steps: []store.StepState{{Name: "pulumi update", Status: workflow.StepRunning}}}
	stopping := running
	stopping.CancelRequested = true
	for _, tt := range []struct {
		name  string
		job   store.Job
		why   waiting.Why
		state string
		text  string
		step  int
	}{
		{"succeeded", ended(workflow.StatusSucceeded, "", ""), waiting.Why{}, "succeeded", "Succeeded after 3 min 12 s.", -1},
		{"exit code of a step", failed, waiting.Why{}, "failed", "Failed after 3 min 12 s: step pulumi update ended with exit code 255.", 1},
		{"exit code of the job", byResult, waiting.Why{}, "failed", "Failed after 3 min 12 s: the job ended with exit code 255.", -1},
		{
			"memory", ended(workflow.StatusFailed, workflow.ReasonOOM, "The limit is 512 MiB."),
			waiting.Why{},
			"failed", "Failed after 3 min 12 s: it ran out of memory: The limit is 512 MiB.", -1,
		},
		{
			"image", ended(workflow.StatusFailed, workflow.ReasonImage, "the registry has no such image"),
			waiting.Why{},
			"failed", "Failed after 3 min 12 s: its image could not be used: the registry has no such image.", -1,
		},
		{"defect", ended(workflow.StatusFailed, workflow.ReasonInternalError, ""), waiting.Why{}, "failed", "Failed after 3 min 12 s: a defect in this product, see the log.", -1},
		{"lost", ended(workflow.StatusFailed, workflow.ReasonLost, "The server received nothing."), waiting.Why{}, "lost", "Lost after 3 min 12 s: The server received nothing.", -1},
		{"cancelled", ended(workflow.StatusFailed, workflow.ReasonCancelled, "Cancelled by ada."), waiting.Why{}, "cancelled", "Cancelled by ada after 3 min 12 s.", -1},
		{
			"cancelled between steps", ended(workflow.StatusFailed, workflow.ReasonCancelled, `Cancelled by ada. the deployment was cancelled before the step "pulumi update"`),
			waiting.Why{},
			"cancelled", `Cancelled by ada after 3 min 12 s. The deployment was cancelled before the step "pulumi update".`, -1,
		},
		{"cancelled in the queue", unstarted, waiting.Why{}, "cancelled", "Cancelled by ada before it started.", -1},
		{"running", running, waiting.Why{}, "running", "Running for 4 min: pulumi update.", -1},
		{"stopping", stopping, waiting.Why{}, "running", "Running for 4 min: pulumi update. It was asked to stop, and has up to 15 min to do so.", -1},
		{
			"claimed",
			store.Job{Status: workflow.StatusAccepted, AgentHostname: "build-3", ClaimedAt: start},
			waiting.Why{},
			"claimed", "Starting: build-3 claimed the deployment 4 min ago and prepares it.", -1,
		},
		{"next", store.Job{Status: workflow.StatusNotStarted}, waiting.Why{Text: "T.", Position: 1}, "queued", "Queued, next in its pool. T.", -1},
		{"third", store.Job{Status: workflow.StatusNotStarted}, waiting.Why{Text: "T.", Position: 3}, "queued", "Queued, 3rd in its pool. T.", -1},
		{"behind", store.Job{Status: workflow.StatusNotStarted}, waiting.Why{Text: "T.", Ahead: 1}, "queued", "Queued, 2nd of its stack. T.", -1},
	} {
		v := waiting.Judge(tt.job, tt.why, start.Add(4*time.Minute))
		if v.State != tt.state || v.Text != tt.text || v.Step != tt.step {
			t.Errorf("%s: the verdict is %q, step %d: %q; want %q, step %d: %q", tt.name, v.State, v.Step, v.Text, tt.state, tt.step, tt.text)
		}
	}
}

func TestOrdinal(t *testing.T) {
	for n, want := range map[int64]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 111: "111th", 122: "122nd"} {
		if got := waiting.Ordinal(n); got != want {
			t.Errorf("Ordinal(%d) = %q, want %q", n, got, want)
		}
	}
}
