package journal

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/journaltest"
	"workflowagent/internal/server/fault"
)

// TestGeneratedMigrations checks invariants of generated journals that migrate the state. The test
// tier "clients" compares the results with the CLI's own replay.
func TestGeneratedMigrations(t *testing.T) {
	accepted := 0
	for seed := range uint64(500) {
		c := journaltest.NewMigration(seed)
		entries, err := checkedEntries(c.Entries)
		if err == nil {
			err = CheckMigrations(parseState(t, string(c.Base)), sequence(nil), entries, testOptions())
		}
		if err == nil {
			accepted++
			checkJournal(t, seed, c)
		} else if fault.KindOf(err) != fault.KindInvalid {
			t.Errorf("seed %d: %v is not the client's error", seed, err)
		}
	}
	if accepted < 100 {
		t.Errorf("only %d generated journals are accepted", accepted)
	}
}

func migrates(layout, states, more string) string {
	return `"version":2,"kind":10,"layout":[` + layout + `],"states":[` + states + `]` + more
}

// withID returns a resource that a migration may insert.
func withID(name string, members ...string) string {
	return resource(name, append(members, `"id":"`+name+`"`)...)
}

// TestReplayMigrations checks the rules of migrations one by one.
func TestReplayMigrations(t *testing.T) {
	a, b, c, m := withID("a"), withID("b"), withID("c"), withID("m")
	b2 := withID("b", `"later":1`)
	deleted := strings.TrimSuffix(b, "}") + `,"delete":true}`
	moved := migrates(`{"baseIndex":1},{"stateIndex":0}`, m, "") // a goes, b moves from 1 to 0
	for _, tt := range []struct {
		name    string
		entries []string
		want    []string
	}{
		{"replaces and orders", []string{moved}, []string{b, m}},
		{"keeps what the journal has", []string{created("1", c), moved}, []string{c, b, m}},
		{"patches the base", []string{migrates(`{"baseIndex":1},{"stateIndex":0}`, m, `,"baseStatePatches":[{"index":1,"state":`+b2+`}]`)}, []string{b2, m}},
		{"patches the journal", []string{created("7", b) + `,"removeOld":1`, moved + `,"newStatePatches":[{"operationID":7,"state":` + b2 + `}]`}, []string{b2, m}},
		{"moves earlier removals", []string{`"kind":1,"operationID":1,"removeOld":1`, moved}, []string{m}},
		{"drops removals of what goes", []string{`"kind":1,"operationID":1,"removeOld":0`, moved}, []string{b, m}},
		{"moves earlier marks", []string{`"kind":1,"operationID":1,"deleteOld":1`, moved}, []string{deleted, m}},
		{"moves earlier replacements", []string{`"kind":4,"removeOld":1,"state":` + b2, moved}, []string{b2, m}},
		{
			"a patch replaces an earlier replacement",
			[]string{
				`"kind":4,"removeOld":1,"state":` + withID("b", `"earlier":1`),
				moved + `,"baseStatePatches":[{"index":1,"state":` + b2 + `}]`,
			},
			[]string{b2, m},
		},
		{"later entries refer to the new base", []string{moved, `"kind":1,"operationID":1,"removeOld":1`}, []string{b}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			base := parseState(t, state(a, b))
			entries := parseEntries(t, tt.entries...)
			if err := CheckMigrations(base, sequence(nil), entries, testOptions()); err != nil {
				t.Fatalf("the check refuses the journal: %v", err)
			}
			d, err := Replay(base, sequence(entries), testOptions())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, strings.Split(string(bytes.Join(d.Resources, []byte("\n"))), "\n")); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMigrationsAreCheckedWithTheStoredEntries checks that a migration is refused because of an entry
// that is stored, and that the stored migrations before it are not checked again.
func TestMigrationsAreCheckedWithTheStoredEntries(t *testing.T) {
	base := parseState(t, state(withID("a")))
	all := `{"baseIndex":0},{"stateIndex":0}`
	dangling := migrates(all, withID("m", `"dependencies":["`+urn("gone")+`"]`), "")
	entries := parseEntries(t, dangling, `"kind":0,"operationID":1,"operation":{"type":"creating","resource":`+resource("x")+`}`,
		migrates(`{"baseIndex":0},{"baseIndex":1},{"stateIndex":0}`, withID("n"), ""))
	err := CheckMigrations(base, sequence(entries[:2]), entries[2:], testOptions())
	if fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), "an operation has not finished") {
		t.Errorf("a migration during an operation: %v", err)
	}
	err = CheckMigrations(base, sequence(nil), entries, testOptions())
	if fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), "does not precede it") {
		t.Errorf("a migration to a missing resource: %v", err)
	}
	if _, err := Replay(base, sequence(entries), testOptions()); err != nil {
		t.Errorf("a replay repeats the check: %v", err)
	}
}

// TestProgressLimitsMigrations migrates a state as often as possible, and then once more.
func TestProgressLimitsMigrations(t *testing.T) {
	entries := make([]string, maxMigrations+1)
	for i := range entries {
		entries[i] = migrates(`{"stateIndex":0}`, withID("m"), "")
	}
	parsed := parseEntries(t, entries...)
	p := NewProgress(2)
	refused := func(how string, entries []Entry) {
		t.Helper()
		if err := p.AddAll(entries); fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), "migrates the state") {
			t.Errorf("%s: %v, want an invalid request", how, err)
		}
	}
	refused("in one batch", parsed)
	if err := p.AddAll(parsed[1:]); err != nil {
		t.Errorf("adding %d migrations: %v", maxMigrations, err)
	}
	refused("in another batch", parsed[:1])
}
