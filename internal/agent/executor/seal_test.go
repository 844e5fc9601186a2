package executor_test

import (
	"encoding/json"
	"testing"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/workflow"
)

func TestSealedResult(t *testing.T) {
	sealed := executor.Result{Status: workflow.StatusSucceeded, FinishedAt: time.Now()}.Sealed("token")
	data, err := json.Marshal(sealed)
	if err != nil {
		t.Fatal(err)
	}
	var read executor.Result
	if err := json.Unmarshal(data, &read); err != nil || !read.SealedWith("token") {
		t.Fatalf("%s, %v: the seal does not hold", data, err)
	}
	for name, forge := range map[string]func(r *executor.Result){
		"status":   func(r *executor.Result) { r.Status = workflow.StatusFailed },
		"code":     func(r *executor.Result) { r.ExitCode = 1 },
		"reason":   func(r *executor.Result) { r.Reason = workflow.ReasonSignal },
		"reported": func(r *executor.Result) { r.Reported = true },
		"time":     func(r *executor.Result) { r.FinishedAt = r.FinishedAt.Add(1) },
		"no seal":  func(r *executor.Result) { r.Seal = "" },
		"no hex":   func(r *executor.Result) { r.Seal = "x" },
	} {
		r := read
		if forge(&r); r.SealedWith("token") {
			t.Errorf("%s: the seal holds on %+v", name, r)
		}
	}
	if read.SealedWith("other") || (executor.Result{}).Sealed("").SealedWith("") {
		t.Error("another token's seal holds")
	}
}
