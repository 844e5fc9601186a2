package inventory_test

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/inventory"
)

func list(texts ...string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, text := range texts {
			if !yield([]byte(text), nil) {
				return
			}
		}
	}
}

func urn(name string) string { return "urn:pulumi:s::p::t:m:T::" + name }

func one(name, more string) string {
	return fmt.Sprintf(`{"urn":%q,"type":"t:m:T"%s}`, urn(name), more)
}

func TestOf(t *testing.T) {
	state := []string{
		one("a", `,"delete":true,"id":"old"`),
		one("a", `,"id":"new","protect":true,"external":true,"taint":true,"retainOnDelete":true,"initErrors":["x"],"created":"2026-11-30T01:02:03.5Z","modified":"never"`),
		one("b", `,"pendingReplacement":true,"initErrors":[],"dependencies":[`+fmt.Sprintf("%q,%q,%q,%q", urn("a"), urn("a"), urn("b"), urn("gone"))+`],"provider":"p::1","parent":`+fmt.Sprintf("%q", urn("a"))),
		`{"urn":""}`, `{"type":"t:m:T"}`, `{"urn":"` + strings.Repeat("x", 4096) + `"}`,
		`{"urn":"urn:pulumi:s::p::x$y:m:Z::c\"\u00fc","dependencies":"none"}`,
	}
	l, err := inventory.Of(list(state...))
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
	if got := l.All[1]; fmt.Sprint(got) != fmt.Sprint(want) {
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
	for i, at := range []int{0, 1, 2, 6} {
		if raw, err := inventory.Raw(list(state...), l.All[i]); err != nil || string(raw) != state[at] {
			t.Errorf("the resource %d is %s (%v)", i, raw, err)
		}
	}
}

func TestBounds(t *testing.T) {
	many := func(yield func([]byte, error) bool) {
		for i := range inventory.MaxResources + 1 {
			if !yield([]byte(one(fmt.Sprint(i), "")), nil) {
				return
			}
		}
	}
	if _, err := inventory.Of(many); fault.KindOf(err) != fault.KindTooLarge {
		t.Errorf("too many resources: %v", err)
	}
	broken := errors.New("the disk is broken")
	fails := func(yield func([]byte, error) bool) { yield(nil, broken) }
	if _, err := inventory.Of(fails); !errors.Is(err, broken) {
		t.Errorf("a state that cannot be read: %v", err)
	}
	if _, err := inventory.Raw(fails, inventory.Resource{}); !errors.Is(err, broken) {
		t.Errorf("a state that cannot be read: %v", err)
	}
}
