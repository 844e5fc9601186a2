package deployments_test

import (
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// TestPostRunCommands checks the steps of post-run commands, which are no steps of the definition, and that
// a deployment whose request adds some is of a lower class.
func TestPostRunCommands(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	st := p.stack("dev")
	p.must(p.put(st, strings.Replace(cachedSettings, `"operationContext":{`, `"operationContext":{"postRunCommands":[{"command":"a"},{"command":"b","when":"failure"}],`, 1)))
	d, err := p.service.Create(t.Context(), p.user, st, asked(t, own), "api")
	p.must(err)
	c := p.next("a")
	def, err := p.service.Definition(t.Context(), runner(c), c.Job.ID)
	p.must(err)
	steps := p.job(d.ID).Steps
	if len(steps) != len(def.Steps)+2 || steps[len(def.Steps)+1].Name != "Post-run command 2" || len(def.Deployment.PostRunCommands) != 2 || def.Deployment.PostRunCommands[1].When != workflow.WhenFailure {
		t.Errorf("the job has %d steps, and the definition %+v with %+v", len(steps), def.Steps, def.Deployment.PostRunCommands)
	}
	if d.Trust != "own" {
		t.Errorf("the class is %q", d.Trust)
	}
	// The agent of a runner that died in a post-run command reports that the last step with a log has failed.
	last := len(def.Steps) - 1
	for _, status := range []workflow.StepStatus{workflow.StepSucceeded, workflow.StepFailed} {
		p.must(p.service.StepStatus(t.Context(), runner(c), c.Job.ID, last, protocol.StepStatusRequest{Status: status}))
	}
	if got := p.job(d.ID).Steps[last].Status; got != workflow.StepSucceeded {
		t.Errorf("a succeeded step has the status %s", got)
	}
	// A skipped command has no start, and the agent does not take it for the one that failed.
	for _, status := range []workflow.StepStatus{workflow.StepSkipped, workflow.StepFailed} {
		p.must(p.service.StepStatus(t.Context(), runner(c), c.Job.ID, last+1, protocol.StepStatusRequest{Status: status}))
	}
	if got := p.job(d.ID).Steps[last+1]; got.Status != workflow.StepSkipped || !got.StartedAt.IsZero() {
		t.Errorf("a skipped step is %+v", got)
	}
	p.must(p.result(c, workflow.StatusFailed))
	other, err := p.service.Create(t.Context(), p.user, st, asked(t, `{"operation":"update","operationContext":{"postRunCommands":[{"command":"curl x"}]}}`), "api")
	p.must(err)
	if other.Trust != "branch" {
		t.Errorf("with other commands, the class is %q", other.Trust)
	}

	// An agent that uses only the stock API does not know the commands. Its job ends without them.
	c = p.poll("a")
	p.change(other.ID, func(j *store.Job) { j.Stock = true })
	_, err = p.service.Definition(t.Context(), runner(c), c.Job.ID)
	p.must(err)
	job := p.job(other.ID)
	if last := job.Steps[len(job.Steps)-1]; last.Name != "pulumi update" || len(job.Notes) != 1 || !strings.Contains(job.Notes[0].Text, "post-run commands do not run") {
		t.Errorf("the job of a stock agent has the last step %s and the notes %v", last.Name, job.Notes)
	}

	for body, want := range map[string]string{
		`[{"command":" "}]`:                "postRunCommands[0] has no command",
		`[{"command":"a","when":"never"}]`: "postRunCommands[0].when must be always",
		`["a"]`:                            "postRunCommands",
		`[` + strings.Repeat(`{"command":"a"},`, 20) + `{"command":"a"}]`: "more than 20 commands",
	} {
		if err := p.put(st, `{"operationContext":{"postRunCommands":`+body+`}}`); fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}
