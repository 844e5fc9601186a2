package deployment

import (
	"slices"
	"testing"
	"time"

	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

func TestSegmentsOfFailedJob(t *testing.T) {
	start := time.Now()
	job := store.Job{
		Status: workflow.StatusFailed, QueuedAt: start, ClaimedAt: start, EndedAt: start.Add(time.Second),
		Steps: []store.StepState{
			{Name: "source", Status: workflow.StepSucceeded, StartedAt: start, FinishedAt: start},
			{Name: "pre-run", Status: workflow.StepRunning, StartedAt: start},
			{Name: "pulumi", Status: workflow.StepNotStarted},
		},
	}
	var got []string
	for _, s := range segments(job, nil, start) {
		got = append(got, s.Name+" "+s.Status)
	}
	want := []string{"Wait in the queue succeeded", "Start the agent's job succeeded", "source succeeded", "pre-run failed", "pulumi skipped"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
