package changes

import (
	"strings"
	"testing"
	"time"

	"workflowagent/internal/server/stacks/changes"
)

// TestTimeline checks the axis, and that the times of resources keep their precision.
func TestTimeline(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	row := func(from, took int) changes.Row {
		return changes.Row{URN: "a", Op: "create", State: changes.Done, Began: begin.Add(time.Duration(from) * time.Second), Took: time.Duration(took) * time.Second}
	}
	c := Course{
		Model: Model{Over: true, Tree: changes.Tree{Rows: []changes.Row{row(1, 0), row(2, 9), row(2, 100)}, Began: begin, LastActivity: begin.Add(102 * time.Second)}},
		Spans: []Span{{Began: begin, Took: 2104 * time.Millisecond}, {Began: begin, Took: 100_200 * time.Millisecond}, {}}, Updates: true,
		Started: begin, Ended: begin.Add(103 * time.Second),
	}
	a := c.axis()
	if got := strings.Join(a.labels(), " "); got != "0:00 0:30 1:00 1:30 2:00" {
		t.Errorf("the ticks are %s", got)
	}
	if x, w := a.bar(begin.Add(30*time.Second), time.Minute); x != "22.900%" || w != "45.800%" {
		t.Errorf("a bar of a minute after 30 seconds is at %s, %s long", x, w)
	}
	for i, want := range []string{"2.104s", "1:40", ""} {
		if got := c.Spans[i].time(); got != want {
			t.Errorf("part %d took %q, want %q", i, got, want)
		}
	}
	for i, want := range []string{"<1s", "9s", "1:40"} {
		if got := c.inSeconds(c.Rows[i]); got != want {
			t.Errorf("resource %d took %q, want %q", i, got, want)
		}
	}
	if got := a.reads(begin.Add(1500*time.Millisecond), time.Second, false); got != "from about 1 s to 2 s" {
		t.Errorf("the place of a resource reads %q", got)
	}
	if got := c.offset(); got != 0 {
		t.Errorf("equal clocks differ by %s", got)
	}
	c.Started, c.Ended = begin.Add(time.Hour), begin.Add(time.Hour+103*time.Second)
	if got := c.offset(); got != time.Hour {
		t.Errorf("clocks that differ by an hour differ by %s", got)
	}
	c.Started = time.Time{}
	if got := c.offset(); got != 0 {
		t.Errorf("without an update, clocks differ by %s", got)
	}
}

// TestLists puts dangerous resources first, and leaves out the resource of the stack, below which all others are.
func TestLists(t *testing.T) {
	m := Model{Over: true, Tree: changes.Tree{Rows: []changes.Row{
		{URN: "s", Name: "s", Type: stackType, Op: "same", State: changes.Done},
		{URN: "d", Name: "d", Parent: "s", Op: "delete", State: changes.Done},
		{URN: "p", Name: "p", Parent: "s", Op: "same", State: changes.Done},
		{URN: "c", Name: "c", Parent: "p", Op: "create", State: changes.Done},
		{URN: "r", Name: "r", Parent: "p", Op: "replace", State: changes.Done},
		{URN: "f", Name: "f", Parent: "s", Op: "update", State: changes.Failed},
	}}}
	names := func() string {
		first, rest := m.lists()
		var out []string
		for _, n := range first {
			out = append(out, n.Name)
		}
		out = append(out, "|")
		for _, n := range rest {
			out = append(out, strings.Repeat(".", n.Depth)+n.Name+" "+m.text(n))
		}
		return strings.Join(out, " ")
	}
	if got := names(); got != "f r d | p 1 .c create" {
		t.Errorf("the lists are %s", got)
	}
	if m.Select(); m.URN != "f" {
		t.Errorf("%s is selected", m.URN)
	}
	m.Op = "create"
	if got := names(); got != "| p 1 .c create" {
		t.Errorf("filtered by operation: %s", got)
	}
	m.Op, m.Show = "", ShowDangerous
	if got := names(); got != "r d |" {
		t.Errorf("only dangerous ones: %s", got)
	}
	if got := m.copied(); got != "replace  r\ndelete  d" {
		t.Errorf("the text for a chat is %q", got)
	}
	first, rest := part([]changes.Node{{}, {}}, make([]changes.Node, PageSize), 1)
	if len(first) != 1 || len(rest) != PageSize-1 {
		t.Errorf("a page has %d and %d rows", len(first), len(rest))
	}
}
