package protocol_test

import (
	"encoding/json"
	"testing"
	"time"

	"workflowagent/internal/protocol"

	"workflowagent/internal/workflow"
)

func TestSealedResult(t *testing.T) {
	sealed := protocol.Result{Status: workflow.StatusSucceeded, FinishedAt: time.Now()}.Sealed("token")
	data, err := json.Marshal(sealed)
	if err != nil {
		t.Fatal(err)
	}
	var read protocol.Result
	if err := json.Unmarshal(data, &read); err != nil || !read.SealedWith("token") {
		t.Fatalf("%s, %v: the seal does not hold", data, err)
	}
	for name, forge := range map[string]func(r *protocol.Result){
		"status":   func(r *protocol.Result) { r.Status = workflow.StatusFailed },
		"code":     func(r *protocol.Result) { r.ExitCode = 1 },
		"reason":   func(r *protocol.Result) { r.Reason = workflow.ReasonSignal },
		"reported": func(r *protocol.Result) { r.Reported = true },
		"time":     func(r *protocol.Result) { r.FinishedAt = r.FinishedAt.Add(1) },
		"no seal":  func(r *protocol.Result) { r.Seal = "" },
		"no hex":   func(r *protocol.Result) { r.Seal = "x" },
	} {
		r := read
		if forge(&r); r.SealedWith("token") {
			t.Errorf("%s: the seal holds on %+v", name, r)
		}
	}
	if read.SealedWith("other") || (protocol.Result{}).Sealed("").SealedWith("") {
		t.Error("another token's seal holds")
	}
}
