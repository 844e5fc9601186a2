package inventory_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/inventory"
	"workflowagent/internal/server/stacks/states"
)

// state is a state. moved says that its resources are in other places than before, and reads counts how often they were
// searched.
type state struct {
	texts []string
	err   error
	moved bool
	reads int
}

func (s *state) Pieces(int64) iter.Seq2[states.Piece, error] {
	return func(yield func(states.Piece, error) bool) {
		s.reads++
		begin := int64(0)
		for _, text := range s.texts {
			if !yield(states.Piece{Raw: []byte(text), Begin: begin}, nil) {
				return
			}
			begin += int64(len(text))
		}
		if s.err != nil {
			yield(states.Piece{}, s.err)
		}
	}
}

func (s *state) At(begin int64, size int) ([]byte, error) {
	all := strings.Join(s.texts, "")
	if s.moved || int(begin)+size > len(all) {
		return []byte(`{"urn":`), nil
	}
	return []byte(all[begin : int(begin)+size]), nil
}

func urn(name string) string { return "urn:pulumi:s::p::t:m:T::" + name }

func one(name, more string) string {
	return fmt.Sprintf(`{"urn":%q,"type":"t:m:T"%s}`, urn(name), more)
}

func TestOf(t *testing.T) {
	texts := []string{
		one("a", `,"delete":true,"id":"old"`),
		one("a", `,"id":"new","protect":true,"external":true,"taint":true,"retainOnDelete":true,"initErrors":["x"],"created":"2026-11-30T01:02:03.5Z","modified":"never"`),
		one("b", `,"pendingReplacement":true,"initErrors":[],"dependencies":[`+fmt.Sprintf("%q,%q,%q,%q", urn("a"), urn("a"), urn("b"), urn("gone"))+`],"provider":"p::1","parent":`+fmt.Sprintf("%q", urn("a"))),
		`{"urn":""}`, `{"type":"t:m:T"}`, `{"urn":"` + strings.Repeat("x", 4096) + `"}`,
		`{"urn":"urn:pulumi:s::p::x$y:m:Z::c\"\u00fc","dependencies":"none"}`,
	}
	kept := &state{texts: texts}
	l, err := inventory.Of(t.Context(), kept, 1)
	if err != nil || len(l.All) != 4 {
		t.Fatalf("%d resources (%v)", len(l.All), err)
	}
	if at := l.Find(urn("a"), false); at != 1 || l.Find(urn("a"), true) != 0 || l.Find(urn("b"), true) != -1 || l.Find("x", false) != -1 {
		t.Errorf("the new resource is at %d", at)
	}
	want := inventory.Resource{
		URN: urn("a"), Type: "t:m:T", Name: "a", ID: "new", Protect: true, External: true, Taint: true, Retain: true, Failed: true,
		Created: time.Date(2026, 11, 30, 1, 2, 3, 500_000_000, time.UTC),
	}
	if got := l.All[1]; !strings.HasPrefix(fmt.Sprintf("%+v", got), strings.TrimSuffix(fmt.Sprintf("%+v", want), "begin:0 size:0 needs:[]}")) {
		t.Errorf("the resource is %+v, want %+v", got, want)
	}
	if b := l.All[2]; !b.Replace || b.Failed || b.Provider != "p::1" || b.Parent != urn("a") {
		t.Errorf("the resource is %+v", b)
	}
	if c := l.All[3]; c.Type != "y:m:Z" || c.Name != `c"ü` {
		t.Errorf("the resource is %+v", c)
	}
	if fmt.Sprint(l.Needs(2), l.NeededBy(1), l.NeededBy(0), l.Needs(3)) != "[1] [2] [] []" {
		t.Errorf("the dependencies are %v, %v, %v and %v", l.Needs(2), l.NeededBy(1), l.NeededBy(0), l.Needs(3))
	}
	for _, moved := range []bool{false, true} {
		kept.moved, kept.reads = moved, 0
		for i, at := range []int{0, 1, 2, 6} {
			if raw, err := inventory.Raw(t.Context(), kept, 1, l.All[i]); err != nil || string(raw) != texts[at] {
				t.Errorf("the resource %d is %s (%v)", i, raw, err)
			}
		}
		if want := map[bool]int{true: 4}[moved]; kept.reads != want {
			t.Errorf("the state was searched %d times, want %d", kept.reads, want)
		}
	}
	kept.moved = true
	if raw, err := inventory.Raw(t.Context(), kept, 1, inventory.Resource{URN: urn("gone"), Name: "gone"}); raw != nil || err != nil {
		t.Errorf("a resource that has gone is %s (%v)", raw, err)
	}
}

func TestBounds(t *testing.T) {
	var many state
	for i := range inventory.MaxResources + 1 {
		many.texts = append(many.texts, one(fmt.Sprint(i), ""))
	}
	if _, err := inventory.Of(t.Context(), &many, 1); fault.KindOf(err) != fault.KindTooLarge {
		t.Errorf("too many resources: %v", err)
	}
	broken := &state{err: errors.New("the disk is broken")}
	if _, err := inventory.Of(t.Context(), broken, 1); !errors.Is(err, broken.err) {
		t.Errorf("a state that cannot be read: %v", err)
	}
	if _, err := inventory.Raw(t.Context(), broken, 1, inventory.Resource{}); !errors.Is(err, broken.err) {
		t.Errorf("a state that cannot be read: %v", err)
	}
}

// TestMemory reads states that are made to need much memory.
func TestMemory(t *testing.T) {
	long := strings.Repeat("ü", 1<<20)
	l, err := inventory.Of(t.Context(), &state{texts: []string{one("a", fmt.Sprintf(`,"type":%q,"id":%q,"parent":%q,"provider":%q,"dependencies":[%q]`, "t"+long, "i"+long, "p"+long, "r"+long, "d"+long))}}, 1)
	if err != nil || len(l.All) != 1 {
		t.Fatalf("%d resources (%v)", len(l.All), err)
	}
	for i, text := range []string{l.All[0].Type, l.All[0].ID, l.All[0].Parent, l.All[0].Provider} {
		if len(text) > 2100 || text[0] != "tipr"[i] || !strings.HasSuffix(text, "ü…") {
			t.Errorf("a long text has %d bytes", len(text))
		}
	}
	if n := l.Size(); n < 5*2048 || n > 12_000 {
		t.Errorf("the list of long texts has the size %d", n)
	}

	const most, all = 10_000, 1_000_000
	var texts, needs []string
	for i := range most + 5 {
		texts = append(texts, one(fmt.Sprint(i), ""))
		needs = append(needs, fmt.Sprintf("%q", urn(fmt.Sprint(i))))
	}
	for i := range all/most + 1 {
		texts = append(texts, one(fmt.Sprint("x", i), `,"dependencies":[`+strings.Join(needs, ",")+`]`))
	}
	ctx := budget.With(t.Context(), budget.New(1<<30, time.Second).Share())
	l, err = inventory.Of(ctx, &state{texts: texts}, 1)
	if err != nil || len(l.All) != len(texts) {
		t.Fatalf("%d resources (%v)", len(l.All), err)
	}
	for i, want := range map[int]int{0: most, all/most - 1: most, all / most: 0} {
		r := l.All[most+5+i]
		if n := len(l.Needs(most + 5 + i)); n != want || r.Omitted != most+5-want {
			t.Errorf("the resource %s needs %d resources, and %d are omitted", r.Name, n, r.Omitted)
		}
	}
	if held := budget.Of(ctx).Held(); held != int64(l.Size()) || held < 24*all {
		t.Errorf("the request holds %d bytes of memory for a list of the size %d", held, l.Size())
	}

	for name, texts := range map[string][]string{"many": texts, "a large one": {one("a", fmt.Sprintf(`,"x":%q`, long))}} {
		ctx := budget.With(t.Context(), budget.New(4<<20, time.Second).Share())
		if _, err := inventory.Of(ctx, &state{texts: texts}, 1); !errors.Is(err, budget.ErrTooLarge) {
			t.Errorf("%s with too little memory: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := inventory.Of(ctx, &state{texts: texts}, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("a list after the request was canceled: %v", err)
	}
	if _, err := inventory.Raw(ctx, &state{texts: texts, moved: true}, 1, l.All[0]); !errors.Is(err, context.Canceled) {
		t.Errorf("a resource after the request was canceled: %v", err)
	}
}
