package instance

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// journalForm returns the entries in testdata/journal-v1, which have version 1. Never rewrite those
// files, because an agent that was updated during a job must be able to read such entries. An
// incompatible format requires a new version, and version 1 must remain readable.
func journalForm() map[string]Entry {
	code := 1
	claim := protocol.PollResponse{
		JobID: "98a73190-fbf9-4ca8-8fff-7f391684015f", JobToken: "a job's token", OIDCToken: "a token of the issuer",
		RunID: "run", TypeSpecificID: "4a67fd98-2ce2-483e-aaff-4caed6554f0a", DeploymentID: "4a67fd98-2ce2-483e-aaff-4caed6554f0a",
		WorkflowType: workflow.TypeDeployment, Epoch: 3, PoolID: "ef9c517f-f521-4a6a-bfda-3961d66e8393",
	}
	handle := &executor.Handle{
		Executor: "docker", JobID: claim.JobID, Epoch: 3, CreatedAt: time.Date(2026, 11, 22, 2, 23, 54, 0, time.UTC), Data: json.RawMessage(`{"container":"c"}`),
	}
	e := Entry{
		Version: 1, Claim: claim, ServiceURL: "https://deployments.example.com", Stack: "acme/web/prod", Steps: 5,
		ClaimedAt: time.Date(2026, 11, 22, 2, 23, 50, 123456789, time.UTC), Operation: workflow.OperationUpdate,
	}
	starting, started, reporting := e, e, e
	starting.Phase, starting.Handle = Starting, handle
	started.Phase, started.Handle, started.Echoed = Started, handle, 4711
	reporting.Phase, reporting.Handle = Reporting, handle
	reporting.Result = &protocol.ResultRequest{
		Status: workflow.StatusFailed, Reason: workflow.ReasonExitCode, Message: "The program ended with exit code 1.", ExitCode: &code,
		FinishedAt: time.Date(2026, 11, 22, 2, 24, 3, 0, time.UTC), Truncated: true,
		Steps: []protocol.StepResult{{Step: 0, Bytes: 412, SHA256: "00ff"}, {Step: 4, Bytes: 9, SHA256: "ff00", Gone: true}},
	}
	return map[string]Entry{
		JobName(claim.JobID, 3): starting, JobName("started", 3): started, JobName("reporting", 3): reporting,
	}
}

func TestJournalOfEarlierVersionsIsRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "journal-v1"))); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"newer.1":   `{"version": 2, "phase": "started", "claim": {"jobID": "newer"}}`,
		"nothing.1": `{}`,
		"broken.1":  `{"version": 1,`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, foreign, err := (&Journal{dir: dir}).Read()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(journalForm(), got); diff != "" {
		t.Errorf("the journal differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"broken.1", "newer.1", "nothing.1"}, foreign); diff != "" {
		t.Errorf("foreign entries differ (-want +got):\n%s", diff)
	}
	for _, name := range foreign {
		if _, err := os.Lstat(filepath.Join(dir, name+".json")); err != nil {
			t.Errorf("%s was changed: %v", name, err)
		}
	}
}
