package journal

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/journaltest"
)

// TestGeneratedJournals checks invariants of replay on generated journals. The test tier "clients"
// compares the results with the CLI's own replay.
func TestGeneratedJournals(t *testing.T) {
	for seed := range uint64(1000) {
		checkJournal(t, seed, journaltest.New(seed))
	}
}

func checkJournal(t *testing.T, seed uint64, c journaltest.Case) {
	t.Helper()
	document := bytes.Clone(c.Base)
	base, err := checkedState(c.Base)
	if err != nil {
		t.Fatalf("seed %d: parsing the base: %v", seed, err)
	}
	entries, err := checkedEntries(c.Entries)
	if err != nil {
		t.Fatalf("seed %d: parsing the entries: %v", seed, err)
	}
	progress := NewProgress(len(base.Resources))
	if err := progress.AddAll(entries); err != nil {
		t.Fatalf("seed %d: adding the entries: %v", seed, err)
	}
	got, err := Replay(base, sequence(entries), testOptions())
	if err != nil {
		t.Fatalf("seed %d: replaying entries that the progress accepts: %v", seed, err)
	}
	if progress.Resources() != len(got.Resources) {
		t.Errorf("seed %d: the progress counts %d resources, the state has %d", seed, progress.Resources(), len(got.Resources))
	}
	if !bytes.Equal(document, c.Base) {
		t.Errorf("seed %d: the replay changed the base", seed)
	}
	text := got.document()
	if !json.Valid(text) {
		t.Fatalf("seed %d: the document is not valid JSON:\n%s", seed, text)
	}
	delta := deltaOf(base, got)
	applied, err := Apply(base, delta, nil)
	if err != nil {
		t.Fatalf("seed %d: applying the delta: %v", seed, err)
	}
	if diff := cmp.Diff(string(text), string(applied.document())); diff != "" {
		t.Errorf("seed %d: the delta gives another document (-want +got):\n%s", seed, diff)
	}
	again, err := checkedState(text)
	if err != nil {
		t.Fatalf("seed %d: parsing the document: %v", seed, err)
	}
	if diff := cmp.Diff(string(text), string(again.document())); diff != "" {
		t.Errorf("seed %d: the parsed document differs (-want +got):\n%s", seed, diff)
	}
}
