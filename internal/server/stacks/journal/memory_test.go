package journal

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// small is a memory limit of left bytes.
type small struct{ left int64 }

var errNoMemory = errors.New("no memory")

func (s *small) hold(bytes int64) error {
	if bytes > s.left {
		return errNoMemory
	}
	s.left -= bytes
	return nil
}

// allocated returns the amount of memory that work allocated, in MiB.
func allocated(work func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	work()
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) >> 20
}

func success(operation int, state string) string {
	return fmt.Sprintf(`"kind":1,"operationID":%d,"state":%s`, operation, state)
}

// TestReplayIsBounded checks that replays of small journals with large resulting states fail for
// lack of memory.
func TestReplayIsBounded(t *testing.T) {
	const limit = 16 << 20
	base := parseState(t, state())
	chain := []string{success(0, `{"urn":"urn:pulumi:dev::proj::a::r0","aliases":["urn:pulumi:dev::proj::a::old"]}`)}
	parent, long := "urn:pulumi:dev::proj::a::old", strings.Repeat("t", 1000)
	for i := 1; i < 1000; i++ {
		current := fmt.Sprintf("urn:pulumi:dev::proj::%s::r%d", long, i)
		chain = append(chain, success(i, fmt.Sprintf(`{"urn":"%s","parent":"%s"}`, current, parent)))
		parent = current
	}
	elements := func(text string) string { return strings.TrimSuffix(strings.Repeat(text+",", 1_000_000), ",") }
	for name, entries := range map[string][]string{
		"an alias of a long name": {
			success(1, `{"urn":"`+strings.Repeat("u", 1_000_000)+`","aliases":["a"]}`),
			success(2, `{"urn":"b","dependencies":[`+elements(`"a"`)+`]}`),
		},
		"types that grow with each child": chain,
		"many small resources":            {`"kind":5,"newSnapshot":{"resources":[` + elements("{}") + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			parsed := parseEntries(t, entries...)
			var err error
			memory := small{limit}
			options := testOptions()
			options.Hold = memory.hold
			mib := allocated(func() { _, err = Replay(base, sequence(parsed), options) })
			if !errors.Is(err, errNoMemory) {
				t.Errorf("the replay returned %v, want that the memory is too small", err)
			}
			if mib > 10*limit>>20 {
				t.Errorf("the replay used %d MiB, of which it was given %d", mib, limit>>20)
			}
		})
	}
}

func TestReadingIsBounded(t *testing.T) {
	const n = 1_000_000
	document := []byte(`{"version":3,"deployment":{"resources":[0` + strings.Repeat(",0", n-1) + `]}}`)
	parent, err := ReadState(document, nil)
	if err != nil {
		t.Fatal(err)
	}
	delta := deltaOf(parent, parent)
	for name, read := range map[string]func(Hold) error{
		"a whole state": func(h Hold) error { _, err := ReadState(document, h); return err },
		"a delta":       func(h Hold) error { _, err := Apply(parent, delta, h); return err },
	} {
		memory := small{n * 10}
		if err := read(memory.hold); !errors.Is(err, errNoMemory) {
			t.Errorf("reading %s returned %v, want that the memory is too small", name, err)
		}
		memory = small{n * perResource}
		if err := read(memory.hold); err != nil {
			t.Errorf("reading %s with enough memory: %v", name, err)
		}
	}
}

// TestReplayKeepsNoEntries checks that the replay of a long journal needs only the memory of its
// result.
func TestReplayKeepsNoEntries(t *testing.T) {
	memory := small{1 << 20}
	options := testOptions()
	options.Hold = memory.hold
	operation := `"operation":{"resource":` + resource("a", `"id":"`+strings.Repeat("x", 100_000)+`"`) + `,"type":"creating"}`
	var texts []string
	for range 200 {
		texts = append(texts, `"kind":0,"operationID":1,`+operation, `"kind":2,"operationID":1`)
	}
	parsed := parseEntries(t, texts...)
	d, err := Replay(parseState(t, state()), sequence(parsed), options)
	if err != nil {
		t.Fatalf("a journal of finished operations failed: %v", err)
	}
	if len(d.Resources) != 0 {
		t.Errorf("the state has %d resources, want none", len(d.Resources))
	}
	created := parseEntries(t, success(1, resource("a")))
	d, err = Replay(parseState(t, state()), sequence(created), testOptions())
	if err != nil {
		t.Fatal(err)
	}
	want := d.document()
	clear(created[0].Raw)
	if got := d.document(); !bytes.Equal(got, want) {
		t.Error("the state changed with the memory of its entries")
	}
}

// TestErrorsAreShort checks that an error contains only the beginning of a very long name.
func TestErrorsAreShort(t *testing.T) {
	name := strings.Repeat("\x7f", 1_000_000)
	_, err := checkedEntries([]byte(`[{"version":1,"kind":1,"sequenceID":1,"state":{"propertyDependencies":{"` + name + `":5}}}]`))
	if err == nil || len(err.Error()) > 1000 {
		t.Errorf("the error is %.100q…, want a short one", fmt.Sprint(err))
	}
}

func TestNullDeploymentReplacesAnother(t *testing.T) {
	d := parseState(t, `{"version":3,"deployment":{"resources":[{}]},"deployment":null}`)
	if len(d.Resources) != 0 {
		t.Errorf("the state has %d resources, want those of the last member: none", len(d.Resources))
	}
}
