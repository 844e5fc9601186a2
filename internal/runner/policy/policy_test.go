package policy

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/workflow"
)

// TestContinues tests that only results which say what could not be evaluated are reported after a failed step.
func TestContinues(t *testing.T) {
	packs := failed(workflow.PolicyResults{Packs: []workflow.PolicyPackResult{{Name: "a", Error: "broken"}}})
	for _, tt := range []struct {
		run  string
		err  error
		want bool
	}{
		{workflow.RunPolicyEvaluate, packs, true},
		{workflow.RunPolicyInstall, packs, true},
		{workflow.RunPolicyState, packs, false},
		{workflow.RunPolicyEvaluate, fmt.Errorf("a: %w", errSurvivors), false},
		{workflow.RunPolicyEvaluate, errors.New("pulumi was not found"), false},
	} {
		if got := Continues(tt.run, ExitCode(tt.err)); got != tt.want {
			t.Errorf("after %q of %s, the next step runs: %t", tt.err, tt.run, got)
		}
	}
	if ExitCode(nil) != 0 {
		t.Error("success has an exit code")
	}
}

// TestTimeOfPacks tests that packs that hang leave time to those after them.
func TestTimeOfPacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Params{Remaining: workflow.Duration(25 * time.Minute), Evaluation: &workflow.PolicyEvaluation{PackTimeout: workflow.Duration(workflow.PolicyPackTimeout)}}
		began := time.Now()
		end := began.Add(25 * time.Minute)
		const packs = 100
		refused := 0
		for i := range packs {
			timeout, err := p.timeout(end, packs-i-1)
			if err != nil {
				refused++
				continue
			}
			if i == 3 && timeout < time.Minute {
				t.Errorf("after three packs that hang, the next one gets %s", timeout)
			}
			time.Sleep(timeout)
		}
		if took := time.Since(began); took > 25*time.Minute || refused == 0 {
			t.Errorf("hanging packs took %s, %d were not started", took, refused)
		}
		if timeout, err := p.timeout(time.Now().Add(8*time.Minute), 0); timeout != 8*time.Minute || err != nil {
			t.Errorf("the last pack gets %s, %v", timeout, err)
		}
	})
}
