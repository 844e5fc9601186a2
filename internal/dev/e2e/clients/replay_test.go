package clients

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

	gocmp "github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/journaltest"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/server/stacks/journal"
)

// replayCase is a line of the replayer's input.
type replayCase struct {
	Base    json.RawMessage `json:"base"`
	Entries json.RawMessage `json:"entries"`
	Got     json.RawMessage `json:"got"`
}

// replayResult is a line of its output.
type replayResult struct {
	Want, Got map[string]any
	Error     string
}

// replayOfficially returns the official results of cases.
func replayOfficially(t *testing.T, cases []replayCase) []replayResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	program, err := lab.Replayer(ctx, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	var in bytes.Buffer
	encoder := json.NewEncoder(&in)
	for _, c := range cases {
		if err := encoder.Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Stdin = &in
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("running the replayer: %v\n%s", err, &stderr)
	}
	results := make([]replayResult, len(cases))
	decoder := json.NewDecoder(bytes.NewReader(out))
	for i := range results {
		if err := decoder.Decode(&results[i]); err != nil {
			t.Fatalf("reading the result of case %d: %v", i, err)
		}
	}
	return results
}

// replay replays entries with the server's code.
func replay(base, entries []byte) ([]byte, error) {
	from, err := journal.ParseState(base)
	if err != nil {
		return nil, err
	}
	parsed, err := journal.Parse(entries)
	if err != nil {
		return nil, err
	}
	d, err := journal.Replay(from, func(yield func(journal.Entry, error) bool) {
		for _, e := range parsed {
			if !yield(e, nil) {
				return
			}
		}
	}, journal.Options{Time: time.Now(), PulumiVersion: lab.PulumiVersion})
	if err != nil {
		return nil, err
	}
	return d.Append(nil), nil
}

// comparableState removes what may differ from an official state: the time, and the order of pending
// operations, which the CLI takes from a map.
func comparableState(state map[string]any) map[string]any {
	deployment, _ := state["deployment"].(map[string]any)
	if manifest, ok := deployment["manifest"].(map[string]any); ok {
		delete(manifest, "time")
	}
	if operations, ok := deployment["pending_operations"].([]any); ok {
		slices.SortFunc(operations, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	return state
}

// TestClientsReplayGeneratedJournals compares the server's replay of generated journals with the
// CLI's own.
func TestClientsReplayGeneratedJournals(t *testing.T) {
	const seeds = 4000
	cases := make([]replayCase, seeds)
	for i := range cases {
		c := journaltest.New(uint64(i))
		got, err := replay(c.Base, c.Entries)
		if err != nil {
			t.Fatalf("seed %d: %v", i, err)
		}
		cases[i] = replayCase{Base: c.Base, Entries: c.Entries, Got: got}
	}
	refused, failed := 0, 0
	for i, r := range replayOfficially(t, cases) {
		if strings.Contains(r.Error, "have the same alias") {
			refused++ // such a state is kept, because its entries were acknowledged
			continue
		}
		diff := gocmp.Diff(comparableState(r.Want), comparableState(r.Got))
		if r.Error == "" && diff == "" {
			continue
		}
		t.Errorf("seed %d: the CLI's error is %q, its state differs (-want +got):\n%s\nbase: %s\nentries: %s",
			i, r.Error, diff, cases[i].Base, cases[i].Entries)
		if failed++; failed == 3 {
			t.Fatal("stopped after three seeds")
		}
	}
	if refused > seeds/10 {
		t.Errorf("the CLI refuses %d of %d generated journals, so the test compares too few", refused, seeds)
	}
}
