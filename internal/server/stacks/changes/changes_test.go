package changes_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/server/stacks/changes"
)

func urn(name string) string { return "urn:pulumi:prod::web::pkg:index:Thing::" + name }

type m = map[string]any

// stepEvent returns an event of a step.
func stepEvent(seq, at int, kind, op, name, parent string, more m) []byte {
	meta := m{"op": op, "urn": urn(name), "type": "pkg:index:Thing"}
	if parent != "" {
		meta["new"] = m{"parent": urn(parent), "inputs": m{"a": 1}}
	}
	maps.Copy(meta, more)
	return encode(m{"sequence": seq, "timestamp": at, kind: m{"metadata": meta}})
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

const pre, outputs, failed = "resourcePreEvent", "resOutputsEvent", "resOpFailedEvent"

func sample() [][]byte {
	return [][]byte{
		encode(m{"sequence": 1, "timestamp": 100, "preludeEvent": m{"config": m{"web:size": "3"}}}),
		encode(m{"sequence": 2, "timestamp": 100, "progressEvent": m{"id": "aws", "message": "Downloading", "done": false}}),
		stepEvent(3, 100, pre, "same", "root", "", nil),
		stepEvent(4, 100, outputs, "same", "root", "", nil),
		stepEvent(5, 101, pre, "create", "made", "root", nil),
		stepEvent(6, 104, outputs, "create", "made", "root", nil),
		stepEvent(7, 101, pre, "create-replacement", "moved", "root", m{"keys": []string{"zone"}, "detailedDiff": m{
			"size": m{"diffKind": "update"}, "zone": m{"diffKind": "update-replace"},
		}}),
		stepEvent(8, 102, outputs, "create-replacement", "moved", "root", nil),
		stepEvent(9, 102, pre, "replace", "moved", "root", nil),
		stepEvent(10, 103, pre, "delete-replaced", "moved", "root", nil),
		stepEvent(11, 101, pre, "update", "bad", "root", nil),
		encode(m{"sequence": 12, "timestamp": 102, "diagnosticEvent": m{"urn": urn("bad"), "severity": "info#err", "message": "trying", "ephemeral": true}}),
		encode(m{"sequence": 13, "timestamp": 103, "diagnosticEvent": m{"urn": urn("bad"), "severity": "error", "message": "<{%fg 1%}>refused\x1b[31m\u202e<{%reset%}>\n"}}),
		stepEvent(14, 105, failed, "update", "bad", "root", nil),
		stepEvent(15, 101, pre, "delete", "gone", "root", nil),
		encode(m{"sequence": 16, "timestamp": 105, "policyEvent": m{"resourceUrn": urn("made"), "message": "no", "policyName": "p", "policyPackName": "pack", "enforcementLevel": "advisory"}}),
		stepEvent(17, 101, pre, "same", "quiet", "root", nil),
		stepEvent(18, 101, outputs, "same", "quiet", "root", nil),
		encode(m{"sequence": 19, "timestamp": 106, "progressEvent": m{"id": "aws", "message": "Downloading", "done": true}}),
	}
}

func fold(events [][]byte) changes.Tree {
	var r changes.Reducer
	for _, e := range events {
		r.Add(e)
	}
	return r.Tree()
}

func TestFold(t *testing.T) {
	tree := fold(sample())
	rows := map[string]changes.Row{}
	for _, r := range tree.Rows {
		rows[r.Name] = r
	}
	for name, want := range map[string]struct {
		op    string
		state changes.State
		took  time.Duration
	}{
		"root":  {"same", changes.Done, 0},
		"made":  {"create", changes.Done, 3 * time.Second},
		"moved": {"replace", changes.Running, 0},
		"bad":   {"update", changes.Failed, 4 * time.Second},
		"gone":  {"delete", changes.Running, 0},
		"quiet": {"same", changes.Done, 0},
	} {
		if r := rows[name]; r.Op != want.op || r.State != want.state || r.Took != want.took {
			t.Errorf("%s: %s %s %s, want %+v", name, r.Op, r.State, r.Took, want)
		}
	}
	if r := rows["bad"]; r.Errors != 1 || r.Message != "refused" {
		t.Errorf("diagnostics: %d, %q", r.Errors, r.Message)
	}
	if r := rows["moved"]; len(r.Diff) != 2 || r.Diff[0].Path != "zone" || !reflect.DeepEqual(r.ReplaceKeys, []string{"zone"}) {
		t.Errorf("diff: %+v", r)
	}
	if rows["made"].Policies != 1 || rows["made"].Type != "pkg:index:Thing" {
		t.Errorf("made: %+v", rows["made"])
	}
	if tree.Running != 2 || tree.Failures != 1 || len(tree.Progress) != 0 || len(tree.Messages) != 2 || tree.Messages[0].Severity != "error" {
		t.Errorf("tree: %+v", tree)
	}
}

// Clients send batches in parallel, and again after failures.
func TestFoldInAnyOrder(t *testing.T) {
	want := fold(sample())
	for seed := range uint64(50) {
		list := append(sample(), sample()[5:12]...)
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		if got := fold(list); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d:\n%+v\nwant\n%+v", seed, got, want)
		}
	}
}

func TestOrdered(t *testing.T) {
	names := func(nodes []changes.Node) string {
		var out []string
		for _, n := range nodes {
			out = append(out, strings.Repeat(".", n.Depth)+n.Name)
		}
		return strings.Join(out, " ")
	}
	tree := fold(sample())
	if got, want := names(tree.Ordered(changes.Row.Changed)), "root .bad .moved .gone .made"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if n := tree.Ordered(changes.Row.Changed)[0]; n.Same != 1 || n.Below != 4 || !n.Way {
		t.Errorf("root: %+v", n)
	}
	if got := names(tree.Ordered(func(changes.Row) bool { return true })); !strings.Contains(got, ".quiet") {
		t.Errorf("all: %s", got)
	}
	cycle := changes.Tree{Rows: []changes.Row{
		{URN: "a", Name: "a", Parent: "b", Op: "create"},
		{URN: "b", Name: "b", Parent: "a", Op: "create"},
		{URN: "self", Name: "self", Parent: "self", Op: "create"},
		{URN: "orphan", Name: "orphan", Parent: "missing", Op: "create"},
	}}
	if got := len(cycle.Ordered(changes.Row.Changed)); got != 4 {
		t.Errorf("a tree with cycles shows %d of 4 rows: %s", got, names(cycle.Ordered(changes.Row.Changed)))
	}
}

func TestDamagedEvents(t *testing.T) {
	var r changes.Reducer
	for _, e := range []string{
		"", "null", "[]", `{"sequence":"x"}`, `{"resourcePreEvent":{}}`, `{"sequence":1,"resourcePreEvent":{"metadata":{"urn":""}}}`,
		`{"sequence":2,"resourcePreEvent":null}`, `{"sequence":3,"diagnosticEvent":{"urn":5}}`,
	} {
		r.Add([]byte(e))
	}
	if tree := r.Tree(); len(tree.Rows) != 0 {
		t.Errorf("%+v", tree)
	}
}

func TestBounds(t *testing.T) {
	var r changes.Reducer
	long := strings.Repeat("x", 100_000)
	const over = 100
	for i := range changes.MaxRows + over {
		r.Add(stepEvent(i, 1, pre, "create", fmt.Sprint("n", i), "", nil))
	}
	for i := range 1000 {
		r.Add(encode(m{"sequence": 1_000_000 + i, "diagnosticEvent": m{"urn": urn("n1"), "severity": "error", "message": long}}))
	}
	tree := r.Tree()
	if len(tree.Rows) != changes.MaxRows || tree.Omitted != over {
		t.Errorf("%d rows, %d omitted", len(tree.Rows), tree.Omitted)
	}
	if len(tree.Messages) != 500 || tree.OmittedMessages != 500 || len(tree.Messages[0].Text) > 5000 {
		t.Errorf("%d messages, %d omitted", len(tree.Messages), tree.OmittedMessages)
	}
}

func BenchmarkFold(b *testing.B) {
	for _, n := range []int{5_000, 50_000} {
		var list [][]byte
		for i := range n {
			list = append(list, stepEvent(2*i, 1, pre, "create", fmt.Sprint("n", i), "root", nil), stepEvent(2*i+1, 2, outputs, "create", fmt.Sprint("n", i), "root", nil))
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tree := fold(list)
				if len(tree.Ordered(changes.Row.Changed)) != n {
					b.Fatal("rows are missing")
				}
			}
		})
	}
}
