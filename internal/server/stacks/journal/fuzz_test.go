package journal

import (
	"bytes"
	"encoding/json"
	"testing"

	"workflowagent/internal/dev/journaltest"
	"workflowagent/internal/server/fault"
)

// fuzzBase is a state whose resources refer to each other.
func fuzzBase() []byte {
	return []byte(state(
		resource("a", `"aliases":["x"]`),
		resource("b", `"parent":"`+urn("a")+`"`, `"dependencies":["x","`+urn("a")+`"]`),
		resource("c", `"deletedWith":"`+urn("b")+`"`),
	))
}

// FuzzParse checks that every journal that [Progress] accepts can be replayed.
func FuzzParse(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(journaltest.New(seed).Entries)
	}
	f.Add([]byte(`[{"version":1,"kind":3,"sequenceID":1,"removeOld":0,"state":null},{"version":1,"kind":7,"sequenceID":1}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := checkedEntries(data)
		if err != nil {
			if fault.KindOf(err) != fault.KindInvalid {
				t.Errorf("the error is no client's: %v", err)
			}
			return
		}
		base, err := checkedState(fuzzBase())
		if err != nil {
			t.Fatal(err)
		}
		progress := NewProgress(len(base.Resources))
		refused := progress.AddAll(entries)
		if refused != nil {
			if progress.Resources() != len(base.Resources) || len(progress.operations) > 0 {
				t.Errorf("the progress changed by refused entries: %+v", progress)
			}
			_, err := Replay(base, sequence(entries), testOptions())
			if err == nil || err.Error() != refused.Error() {
				t.Errorf("the progress fails with %v, the replay with %v", refused, err)
			}
			return
		}
		d, err := Replay(base, sequence(entries), testOptions())
		if err != nil {
			t.Fatalf("replaying entries that the progress accepts: %v", err)
		}
		if progress.Resources() != len(d.Resources) {
			t.Errorf("the progress counts %d resources, the state has %d", progress.Resources(), len(d.Resources))
		}
		if document := d.document(); !json.Valid(document) {
			t.Errorf("the document is not valid JSON: %s", document)
		}
	})
}

// FuzzParseState checks that every accepted state can be a base, and that its document is stable.
func FuzzParseState(f *testing.F) {
	f.Add(fuzzBase(), uint64(1))
	for seed := range uint64(20) {
		f.Add(journaltest.New(seed).Base, seed)
	}
	f.Add([]byte(`{"deployment":{"resources":[1,null,{}],"resources":[{"dependencies":5}],"manifest":null}}`), uint64(2))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		base, err := checkedState(data)
		if err != nil {
			if fault.KindOf(err) != fault.KindInvalid {
				t.Errorf("the error is no client's: %v", err)
			}
			return
		}
		document := base.document()
		if len(document) != base.Size() || !json.Valid(document) {
			t.Errorf("the document has %d bytes instead of %d, or is not valid JSON: %s", len(document), base.Size(), document)
		}
		again, err := checkedState(document)
		if err != nil {
			t.Fatalf("parsing the document %s: %v", document, err)
		}
		if !bytes.Equal(document, again.document()) {
			t.Errorf("the document %s changes to %s", document, again.document())
		}
		entries, err := checkedEntries([]byte(`[{"version":1,"kind":3,"sequenceID":1},{"version":1,"kind":6,"sequenceID":2,"secretsProvider":{}}]`))
		if err != nil {
			t.Fatal(err)
		}
		child, err := Replay(base, sequence(entries), testOptions())
		if err != nil {
			t.Fatalf("replaying: %v", err)
		}
		applied, err := Apply(base, deltaOf(base, child), nil)
		if err != nil {
			t.Fatalf("applying the delta: %v", err)
		}
		if !bytes.Equal(child.document(), applied.document()) {
			t.Errorf("the delta gives the document %s instead of %s", applied.document(), child.document())
		}
	})
}

// FuzzApply checks that damaged deltas result in an error or in a state of bounded size.
func FuzzApply(f *testing.F) {
	parent, err := checkedState(fuzzBase())
	if err != nil {
		f.Fatal(err)
	}
	for seed := range uint64(20) {
		child, err := checkedState(journaltest.New(seed).Base)
		if err != nil {
			f.Fatal(err)
		}
		child.Resources = append(child.Resources, parent.Resources...)
		f.Add(deltaOf(parent, child))
	}
	f.Fuzz(func(t *testing.T, delta []byte) {
		d, err := Apply(parent, delta, nil)
		if err != nil {
			return
		}
		if n := len(d.Resources); n > len(parent.Resources)+len(delta) {
			t.Errorf("%d bytes give %d resources", len(delta), n)
		}
		document := d.document()
		if !json.Valid(document) {
			t.Errorf("the document is not valid JSON: %s", document)
		}
		if _, err := Apply(parent, deltaOf(parent, d), nil); err != nil {
			t.Errorf("applying the delta of the result: %v", err)
		}
	})
}

// FuzzReplay checks generated journals.
func FuzzReplay(f *testing.F) {
	f.Add(uint64(1 << 40))
	f.Fuzz(func(t *testing.T, seed uint64) { checkJournal(t, seed, journaltest.New(seed)) })
}
