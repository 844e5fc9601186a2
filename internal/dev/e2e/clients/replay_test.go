package clients

import (
	"bytes"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/journaltest"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/server/stacks/journal"
)

// replay replays entries with the server's code.
func replay(base, entries []byte) ([]byte, error) {
	from, err := journal.ReadState(base, nil)
	if err != nil {
		return nil, err
	}
	parsed, err := journal.ReadEntries(entries)
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
	var document bytes.Buffer
	_, err = d.WriteTo(&document)
	return document.Bytes(), err
}

// TestClientsReplayGeneratedJournals compares the server's replay of generated journals with the
// CLI's own replay.
func TestClientsReplayGeneratedJournals(t *testing.T) {
	const seeds = 4000
	cases := make([]harness.ReplayCase, seeds)
	for i := range cases {
		c := journaltest.New(uint64(i))
		got, err := replay(c.Base, c.Entries)
		if err != nil {
			t.Fatalf("seed %d: %v", i, err)
		}
		cases[i] = harness.ReplayCase{Base: c.Base, Entries: c.Entries, Got: got}
	}
	refused, failed := 0, 0
	for i, r := range harness.ReplayOfficially(t, cases) {
		if strings.Contains(r.Error, "have the same alias") {
			refused++ // the server keeps such a state, because it has acknowledged the entries
			continue
		}
		diff := gocmp.Diff(harness.ComparableState(r.Want), harness.ComparableState(r.Got))
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

// TestClientsReplayMigrations is [TestClientsReplayGeneratedJournals] for journals that migrate the
// state. The server must refuse those that the CLI's own replay refuses.
func TestClientsReplayMigrations(t *testing.T) {
	const seeds = 4000
	cases, refused := make([]harness.ReplayCase, seeds), make([]error, seeds)
	for i := range cases {
		c := journaltest.NewMigration(uint64(i))
		cases[i] = harness.ReplayCase{Base: c.Base, Entries: c.Entries, Got: []byte(`{"version":3}`)}
		if refused[i] = checkMigrations(c.Base, c.Entries); refused[i] == nil {
			var err error
			if cases[i].Got, err = replay(c.Base, c.Entries); err != nil {
				t.Fatalf("seed %d: %v", i, err)
			}
		}
	}
	both, failed := 0, 0
	for i, r := range harness.ReplayOfficially(t, cases) {
		if r.Error != "" && refused[i] != nil {
			both++
			continue
		}
		diff := gocmp.Diff(harness.ComparableState(r.Want), harness.ComparableState(r.Got))
		if r.Error == "" && refused[i] == nil && diff == "" {
			continue
		}
		t.Errorf("seed %d: the CLI's error is %q, the server's is %v, the CLI's state differs (-want +got):\n%s\nbase: %s\nentries: %s",
			i, r.Error, refused[i], diff, cases[i].Base, cases[i].Entries)
		if failed++; failed == 3 {
			t.Fatal("stopped after three seeds")
		}
	}
	if both < seeds/4 || both > seeds*3/4 {
		t.Errorf("%d of %d generated journals are refused, so the test compares too few", both, seeds)
	}
}

func checkMigrations(base, entries []byte) error {
	from, err := journal.ReadState(base, nil)
	if err != nil {
		return err
	}
	parsed, err := journal.ReadEntries(entries)
	if err != nil {
		return err
	}
	return journal.CheckMigrations(from, func(func(journal.Entry, error) bool) {}, parsed, journal.Options{Time: time.Now()})
}
