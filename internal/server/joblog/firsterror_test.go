package joblog

import (
	"fmt"
	"testing"

	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// TestFirstError prefers the failed step and the errors that say why.
func TestFirstError(t *testing.T) {
	v := newViewed(t)
	if _, found, err := v.logs.FirstError(t.Context(), v.job, 0); found || err != nil {
		t.Errorf("a running job: found %v, %v", found, err)
	}
	v.job.Status = workflow.StatusFailed
	v.job.Steps = append(v.job.Steps, store.StepState{Name: "pulumi update"})
	v.add("begins", "    error: update failed", "  \x1b[31merror: the bucket exists\x1b[0m", "error: later")
	for _, c := range []struct {
		name   string
		id     string
		stream int
		want   string
	}{
		{"of the failed step", "job", 0, "0:2 error: the bucket exists"},
		{"of another step", "job", 1, "0:2 error: the bucket exists"},
		{"of an unknown step", "job", -1, "0:2 error: the bucket exists"},
		{"of another job", "other", 0, ""},
	} {
		job := v.job
		job.ID = c.id
		for range 2 { // the second time from memory
			line, found, err := v.logs.FirstError(t.Context(), job, c.stream)
			got := ""
			if found {
				got = fmt.Sprintf("%d:%d %s", line.Stream, line.Line, line.Text)
			}
			if got != c.want || err != nil {
				t.Errorf("the first error %s is %q, %v; want %q", c.name, got, err, c.want)
			}
		}
	}
	only := newViewed(t)
	only.job.Status = workflow.StatusFailed
	only.add("error: preview failed", "ends")
	if line, found, err := only.logs.FirstError(t.Context(), only.job, 0); !found || line.Line != 0 || err != nil {
		t.Errorf("the only error is %+v, found %v, %v", line, found, err)
	}
}
