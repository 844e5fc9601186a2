package events

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

func numbered(sequences ...int64) []Event {
	var out []Event
	for _, s := range sequences {
		out = append(out, Event{s, fmt.Appendf(nil, `{"sequence":%d}`, s)})
	}
	return out
}

func sequences(list []Event) []int64 {
	var out []int64
	for _, e := range list {
		out = append(out, e.Sequence)
	}
	return out
}

func TestRuns(t *testing.T) {
	sorted := numbered(3, 4, 4, 7, 8, 10)
	sorted[2].Body = []byte("the second event 4")
	var got [][]int64
	for _, run := range Runs(sorted) {
		got = append(got, sequences(run))
		if bytes.Contains(run[len(run)-1].Body, []byte("second")) {
			t.Error("a repeated event replaced the first one")
		}
	}
	if diff := cmp.Diff([][]int64{{3, 4}, {7, 8}, {10}}, got); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

func TestMissing(t *testing.T) {
	run := numbered(3, 4, 5, 6, 7)
	for _, tt := range []struct {
		stored []store.EventRange
		want   []int64
	}{
		{nil, []int64{3, 4, 5, 6, 7}},
		{[]store.EventRange{{First: 8, Last: 9}}, []int64{3, 4, 5, 6, 7}},
		{[]store.EventRange{{First: 0, Last: 3}, {First: 7, Last: 7}}, []int64{4, 5, 6}},
		{[]store.EventRange{{First: 4, Last: 4}, {First: 5, Last: 6}, {First: 8, Last: 8}}, []int64{3, 7}},
		{[]store.EventRange{{First: 0, Last: 90}}, nil},
	} {
		if diff := cmp.Diff(tt.want, sequences(Missing(run, tt.stored))); diff != "" {
			t.Errorf("missing with %v (-want +got):\n%s", tt.stored, diff)
		}
	}
}

func TestPack(t *testing.T) {
	run := numbered(7, 8, 9)
	run[1].Body = []byte("{ \"sequence\": 8,\n\"text\": \"],{\\\"\" }")
	batch, err := Pack(run)
	if err != nil || batch.Last != 9 || batch.Events != 3 {
		t.Fatalf("packed %+v, %v", batch, err)
	}
	for from, n := range map[int64]int{0: 3, 7: 3, 8: 2, 9: 1} {
		got, err := Unpack(batch, from)
		if err != nil || len(got) != n {
			t.Fatalf("from %d on: %d events, want %d, %v", from, len(got), n, err)
		}
		for i, e := range got {
			if want := run[len(run)-n+i].Body; !bytes.Equal(e, want) {
				t.Errorf("from %d on, event %d is %s, want %s", from, i, e, want)
			}
		}
	}
	old, err := Unpack(store.EventBatch{Last: 3, Events: 1, Body: `{"sequence":3}`}, 0)
	if err != nil || len(old) != 1 || string(old[0]) != `{"sequence":3}` {
		t.Errorf("an event of an earlier version: %s, %v", old, err)
	}
}

func TestSimilarEventsArePackedWell(t *testing.T) {
	var run []Event
	size := 0
	for i := range int64(50) {
		body := fmt.Appendf(nil, `{"sequence":%d,"timestamp":1,"resourcePreEvent":{"metadata":{"op":"same","urn":"urn:pulumi:dev::p::t:t:T::r%05d",`+
			`"old":{"type":"t:t:T","inputs":{"input":"value %d"}},"new":{"type":"t:t:T","inputs":{"input":"value %d"}}}}}`, i, i, i, i)
		run, size = append(run, Event{i, body}), size+len(body)
	}
	batch, err := Pack(run)
	if err != nil || len(batch.Packed) > size/10 {
		t.Errorf("%d bytes are packed into %d, %v", size, len(batch.Packed), err)
	}
}

// TestDamagedBatches checks that a damaged batch is reported, and that it cannot use more memory
// than its recorded size.
func TestDamagedBatches(t *testing.T) {
	run := []Event{{0, []byte(`{"x":"` + strings.Repeat("a", 1<<20) + `"}`)}}
	whole, err := Pack(run)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(*store.EventBatch){
		"shorter":           func(b *store.EventBatch) { b.Packed = b.Packed[:len(b.Packed)-1] },
		"not compressed":    func(b *store.EventBatch) { b.Packed = []byte("[]") },
		"larger than known": func(b *store.EventBatch) { b.Size-- },
		"other events":      func(b *store.EventBatch) { b.Events++ },
	} {
		b := whole
		damage(&b)
		if list, err := Unpack(b, 0); fault.KindOf(err) != fault.KindDamaged {
			t.Errorf("%s: %d events, %v", name, len(list), err)
		}
	}
}

func TestAbout(t *testing.T) {
	const urn = "urn:pulumi:dev::p::t:t:T::<ü>"
	for event, want := range map[string]bool{
		`{"sequence":1,"resourcePreEvent":{"metadata":{"op":"same","urn":"urn:pulumi:dev::p::t:t:T::\u003c\u00fc\u003e"}}}`: true,
		`{"sequence":1,"resOutputsEvent":{"planning":true,"metadata":{"urn":"urn:pulumi:dev::p::t:t:T::<ü>"}}}`:             true,
		`{"resOpFailedEvent":{"metadata":{"urn":"urn:pulumi:dev::p::t:t:T::<ü>"}}}`:                                         true,
		`{"diagnosticEvent":{"urn":"urn:pulumi:dev::p::t:t:T::<ü>","message":"m"}}`:                                         true,
		`{"policyEvent":{"resourceUrn":"urn:pulumi:dev::p::t:t:T::<ü>"}}`:                                                   true,
		`{"resourcePreEvent":{"metadata":{"urn":"urn:pulumi:dev::p::t:t:T::other"}}}`:                                       false,
		`{"resourcePreEvent":{"metadata":{"new":{"urn":"urn:pulumi:dev::p::t:t:T::<ü>"}}}}`:                                 false,
		`{"diagnosticEvent":{"message":"urn:pulumi:dev::p::t:t:T::<ü>"}}`:                                                   false,
		`{"summaryEvent":{"metadata":{}},"urn":"urn:pulumi:dev::p::t:t:T::<ü>"}`:                                            false,
		`{"diagnosticEvent":{"urn":7,"resourceUrn":null},"x":[]}`:                                                           false,
	} {
		if got := About([]byte(event), urn); got != want {
			t.Errorf("%s is about the resource: %v, want %v", event, got, want)
		}
	}
}
