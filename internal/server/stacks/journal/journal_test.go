package journal

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/server/fault"
)

func testOptions() Options {
	return Options{Time: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), PulumiVersion: "v3.255.0"}
}

// testMagic is the magic in the manifest of testOptions: the SHA-256 of the version.
const testMagic = "2f2373b761f9f3a55eab124ae26178296bc40c50c33b18885cae828860d3b438"

const testManifest = `"manifest":{"magic":"` + testMagic + `","time":"2026-11-20T12:00:00Z","version":"v3.255.0"}`

func urn(name string) string { return "urn:pulumi:dev::shop::test:index:Thing::" + name }

// resource returns a resource with additional members, such as `"taint":true`.
func resource(name string, members ...string) string {
	return `{` + strings.Join(append([]string{`"urn":"` + urn(name) + `"`, `"custom":true`, `"type":"test:index:Thing"`}, members...), ",") + `}`
}

func state(resources ...string) string {
	return `{"version":3,"deployment":{` + testManifest + `,"resources":[` + strings.Join(resources, ",") + `]}}`
}

func parseState(t *testing.T, doc string) *Deployment {
	t.Helper()
	d, err := checkedState([]byte(doc))
	if err != nil {
		t.Fatalf("parsing the state: %v", err)
	}
	return d
}

// parseEntries parses entries, each given by its members, and numbers them.
func parseEntries(t *testing.T, entries ...string) []Entry {
	t.Helper()
	for i, e := range entries {
		if !strings.HasPrefix(e, `"version"`) {
			e = `"version":1,` + e
		}
		entries[i] = fmt.Sprintf(`{"sequenceID":%d,%s}`, i+1, e)
	}
	out, err := checkedEntries([]byte("[" + strings.Join(entries, ",") + "]"))
	if err != nil {
		t.Fatalf("parsing the entries: %v", err)
	}
	return out
}

func sequence(entries []Entry) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func replay(t *testing.T, base string, entries ...string) *Deployment {
	t.Helper()
	parsed := parseEntries(t, entries...)
	from := parseState(t, base)
	d, err := Replay(from, sequence(parsed), testOptions())
	if err != nil {
		t.Fatalf("replaying: %v", err)
	}
	p := NewProgress(len(from.Resources))
	if err := p.AddAll(parsed); err != nil {
		t.Fatalf("the progress rejects entries that replay: %v", err)
	}
	if p.Resources() != len(d.Resources) {
		t.Errorf("the progress counts %d resources, the state has %d", p.Resources(), len(d.Resources))
	}
	return d
}

func deltaOf(parent, child *Deployment) []byte {
	var out bytes.Buffer
	_ = Diff(&out, parent, child) // a buffer accepts all bytes
	return out.Bytes()
}

func TestDeltaOfAReplay(t *testing.T) {
	a, b, c := resource("a"), resource("b"), resource("c")
	base := state(a, b, c)
	child := replay(t, base, `"kind":1,"operationID":1,"state":`+resource("d"), `"kind":1,"operationID":2,"removeOld":1,"state":`+b)
	parent := parseState(t, base)
	got, err := Apply(parent, deltaOf(parent, child), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(child.document()), string(got.document())); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	for entry, want := range map[string]string{
		`5`:                               "a journal entry must be an object",
		`{"version":3,"kind":0}`:          "the journal version 3 is unknown",
		`{"kind":0,"sequenceID":1}`:       "the journal version 0 is unknown",
		`{"version":1,"sequenceID":1}`:    `member "kind" is missing or unknown`,
		`{"version":2,"kind":11}`:         `member "kind" is missing or unknown`,
		`{"version":1,"kind":0}`:          `member "sequenceID" must be 1 or greater`,
		`{"version":1,"sequenceID":1.5}`:  `member "sequenceID" must be a whole number`,
		`{"version":1,"removeOld":"1"}`:   `member "removeOld" must be a whole number`,
		`{"version":1,"state":[]}`:        `member "state" must be an object`,
		`{"version":1,"state":{"urn":1}}`: `member "state" has a malformed member: "urn" must be a string`,
	} {
		_, err := checkedEntries([]byte("[" + entry + "]"))
		if err == nil || fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("ReadEntries(%s) = %v, want an invalid request with %q", entry, err, want)
		}
	}
}

func TestProgressRefusesUnknownReferences(t *testing.T) {
	for _, tt := range []struct{ entry, want string }{
		{`"kind":1,"operationID":1,"removeOld":2`, "unknown resource 2"},
		{`"kind":1,"operationID":1,"removeOld":-1`, "unknown resource -1"},
		{`"kind":1,"operationID":1,"removeNew":7`, "unknown operation 7"},
		{`"kind":1,"operationID":1,"removeNew":1`, "unknown operation 1"},
	} {
		p := NewProgress(2)
		entries := parseEntries(t, `"kind":1,"operationID":3,"removeOld":1,"state":`+resource("a"), `"kind":7`, tt.entry)
		err := p.AddAll(slices.Clone(entries))
		if err == nil || fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("adding %s: %v, want an invalid request with %q", tt.entry, err, tt.want)
		}
		if p.Resources() != 2 {
			t.Errorf("after the refused batch the progress counts %d resources, want 2", p.Resources())
		}
		if err := p.AddAll(entries[:2]); err != nil {
			t.Errorf("adding the correct entries again: %v", err)
		}
	}
}

// TestProgressLimitsRebases changes the base as often as possible, and then once more, in the same
// batch and in another one.
func TestProgressLimitsRebases(t *testing.T) {
	for _, kind := range []string{`"kind":7`, `"kind":5,"newSnapshot":{}`} {
		entries := make([]string, maxRebases+1)
		for i := range entries {
			entries[i] = kind
		}
		parsed := parseEntries(t, entries...)
		p := NewProgress(2)
		refused := func(how string, entries []Entry) {
			t.Helper()
			if err := p.AddAll(entries); fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), "changes the base") {
				t.Errorf("%s, %s: %v, want an invalid request", kind, how, err)
			}
		}
		refused("in one batch", parsed)
		for i, e := range parsed[1:] {
			if err := p.Add(e); err != nil {
				t.Errorf("%s: adding rebase %d: %v", kind, i+1, err)
			}
		}
		refused("in another batch", parsed[:1])
		if _, err := Replay(parseState(t, state()), sequence(parsed), testOptions()); fault.KindOf(err) != fault.KindInvalid {
			t.Errorf("%s: replaying %d rebases: %v, want an invalid request", kind, len(parsed), err)
		}
	}
}
