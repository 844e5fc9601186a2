package harness

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// ReplayCase is a line of the replayer's input.
type ReplayCase struct {
	Base    json.RawMessage `json:"base"`
	Entries json.RawMessage `json:"entries"`
	Got     json.RawMessage `json:"got"`
}

// ReplayResult is a line of the replayer's output.
type ReplayResult struct {
	Want, Got map[string]any
	Error     string
}

// ReplayOfficially returns the results of replaying cases with the CLI's own code.
func ReplayOfficially(t *testing.T, cases []ReplayCase) []ReplayResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	program := must.Get(lab.Replayer(ctx, os.Stderr))(t)
	var in bytes.Buffer
	encoder := json.NewEncoder(&in)
	for _, c := range cases {
		must.OK(t, encoder.Encode(c))
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Stdin = &in
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("running the replayer: %v\n%s", err, &stderr)
	}
	results := make([]ReplayResult, len(cases))
	decoder := json.NewDecoder(bytes.NewReader(out))
	for i := range results {
		if err := decoder.Decode(&results[i]); err != nil {
			t.Fatalf("reading the result of case %d: %v", i, err)
		}
	}
	return results
}

// ComparableState returns state in a form that can be compared with the CLI's own result. It
// removes the time, and sorts the pending operations, because the CLI takes their order from a map.
func ComparableState(state map[string]any) map[string]any {
	deployment, _ := state["deployment"].(map[string]any)
	if manifest, ok := deployment["manifest"].(map[string]any); ok {
		delete(manifest, "time")
	}
	if operations, ok := deployment["pending_operations"].([]any); ok {
		slices.SortFunc(operations, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	return state
}
