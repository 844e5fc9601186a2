// Package changes folds the engine events of an update into one row per resource. The result does
// not depend on the order of the events, because clients send batches in parallel.
package changes

import (
	"cmp"
	"encoding/json"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"
)

// Reducer folds events. The zero value is ready for use. A Reducer is not safe for concurrent use.
type Reducer struct {
	rows      map[string]*row
	omitted   map[uint64]struct{} // hashes of URNs
	seen      spans
	messages  []Message
	extra     int
	progress  map[string]progress
	summary   *summaryEvent
	cancelled bool
	first     int64 // Unix time
	last      int64
}

type row struct {
	Row
	first               int64 // sequence of the first event
	begun, done, failed uint8 // bits of [steps]
	op                  string
	messageAt           int64
	beganAt, endedAt    int64
	detailed            bool
}

var seed = maphash.MakeSeed()

// steps are the bits of the operations that one resource can go through in one update.
var steps = map[string]uint8{
	"create-replacement": 1, "replace": 2, "delete-replaced": 4, "read-replacement": 8, "discard-replaced": 16,
	"import-replacement": 32, "refresh": 64,
}

const otherStep = 128

func stepOf(op string) uint8 {
	if bit, ok := steps[op]; ok {
		return bit
	}
	return otherStep
}

// Add folds an event. It ignores events without a sequence number, events that it cannot decode and
// events that it has folded before.
func (r *Reducer) Add(body []byte) {
	var e event
	if json.Unmarshal(body, &e) != nil || e.Sequence == nil || !r.seen.add(*e.Sequence) {
		return
	}
	seq := *e.Sequence
	if e.Timestamp > 0 {
		if r.first == 0 || e.Timestamp < r.first {
			r.first = e.Timestamp
		}
		r.last = max(r.last, e.Timestamp)
	}
	switch {
	case e.Pre != nil:
		r.step(seq, e.Pre.Metadata, func(w *row, bit uint8) {
			if !e.Pre.Planning {
				w.begun |= bit
			}
			w.beganAt = earlier(w.beganAt, e.Timestamp)
		})
	case e.Outputs != nil:
		r.step(seq, e.Outputs.Metadata, func(w *row, bit uint8) {
			if !e.Outputs.Planning {
				w.done |= bit
			}
			w.endedAt = max(w.endedAt, e.Timestamp)
		})
	case e.Failed != nil:
		r.step(seq, e.Failed.Metadata, func(w *row, bit uint8) {
			w.failed |= bit
			w.endedAt = max(w.endedAt, e.Timestamp)
		})
	case e.Diagnostic != nil:
		r.diagnostic(seq, e.Diagnostic)
	case e.Policy != nil:
		r.policy(seq, e.Policy)
	case e.Progress != nil:
		r.note(seq, e.Progress)
	case e.Summary != nil:
		r.summary = e.Summary
	case e.Cancel != nil:
		r.cancelled = true
	}
}

func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// row returns a resource's row, or nil beyond the bound.
func (r *Reducer) row(seq int64, urn string) *row {
	if urn == "" || len(urn) > maxURN {
		return nil
	}
	if w, ok := r.rows[urn]; ok {
		w.first = min(w.first, seq)
		return w
	}
	if len(r.rows) >= MaxRows {
		if r.omitted == nil {
			r.omitted = map[uint64]struct{}{}
		}
		if len(r.omitted) < MaxRows {
			r.omitted[maphash.String(seed, urn)] = struct{}{}
		}
		return nil
	}
	if r.rows == nil {
		r.rows = map[string]*row{}
	}
	w := &row{first: seq, messageAt: -1}
	w.URN = strings.Clone(urn)
	w.Type, w.Name = Parts(w.URN)
	r.rows[w.URN] = w
	return w
}

func (r *Reducer) step(seq int64, m metadata, mark func(*row, uint8)) {
	w := r.row(seq, m.URN)
	if w == nil {
		return
	}
	mark(w, stepOf(m.Op))
	if rank(m.Op) > rank(w.op) || rank(m.Op) == rank(w.op) && w.op < m.Op {
		w.op = m.Op
	}
	for _, st := range []*stateRef{m.New, m.Old} {
		if st != nil && st.Parent != "" && len(st.Parent) <= maxURN {
			if w.Parent == "" || st == m.New {
				w.Parent = strings.Clone(st.Parent)
			}
			break
		}
	}
	if len(m.Keys) > 0 && len(w.ReplaceKeys) == 0 {
		w.ReplaceKeys = shorten(m.Keys)
	}
	w.describe(m)
}

// describe keeps the names of the changed properties. A detailed diff is better than a plain one.
func (w *row) describe(m metadata) {
	switch {
	case len(m.DetailedDiff) > 0 && !w.detailed:
		w.detailed, w.Diff, w.More = true, nil, 0
		paths := slices.Sorted(maps.Keys(m.DetailedDiff))
		// The causes of a replacement come first.
		slices.SortStableFunc(paths, func(a, b string) int {
			return replaceFirst(m.DetailedDiff[a].Kind) - replaceFirst(m.DetailedDiff[b].Kind)
		})
		for i, path := range paths {
			if i == maxKeys {
				w.More = len(paths) - maxKeys
				break
			}
			w.Diff = append(w.Diff, Property{cut(path, maxKey), cut(m.DetailedDiff[path].Kind, 20)})
		}
	case len(m.Diffs) > 0 && !w.detailed && len(w.Diff) == 0:
		for _, path := range shorten(m.Diffs) {
			w.Diff = append(w.Diff, Property{path, "update"})
		}
		w.More = len(m.Diffs) - len(w.Diff)
	}
}

func replaceFirst(kind string) int {
	if strings.HasSuffix(kind, "-replace") {
		return 0
	}
	return 1
}

func shorten(keys []string) []string {
	out := make([]string, 0, min(len(keys), maxKeys))
	for _, k := range keys[:min(len(keys), maxKeys)] {
		out = append(out, cut(k, maxKey))
	}
	return out
}

// rank orders the operations on one resource: the row shows the highest. A refresh before an update
// is not the operation.
func rank(op string) int {
	switch op {
	case "":
		return 0
	case "refresh":
		return 1
	case "same":
		return 2
	case "delete-replaced", "discard-replaced", "create-replacement", "read-replacement", "import-replacement":
		return 4
	case "replace":
		return 5
	default:
		return 3
	}
}

// opName returns the operation that people see.
func opName(op string) string {
	switch op {
	case "create-replacement", "delete-replaced", "discard-replaced", "read-replacement", "import-replacement":
		return "replace"
	default:
		return op
	}
}

func (r *Reducer) diagnostic(seq int64, d *diagnosticEvent) {
	text := strings.TrimSpace(Plain(d.Prefix + d.Message))
	w := r.row(seq, d.URN)
	if w != nil && text != "" && seq > w.messageAt {
		w.Message, w.messageAt = cut(text, maxText), seq
	}
	if d.Ephemeral || text == "" {
		return
	}
	if w != nil {
		switch d.Severity {
		case "error":
			w.Errors++
		case "warning":
			w.Warnings++
		}
	}
	r.message(Message{seq, cut(d.URN, maxURN), cut(d.Severity, 20), cut(text, maxMessage)})
}

func (r *Reducer) policy(seq int64, p *policyEvent) {
	text := strings.TrimSpace(p.Pack + " " + p.Name + " (" + p.Enforcement + "): " + Plain(p.Message))
	if w := r.row(seq, p.URN); w != nil {
		w.Policies++
		if seq > w.messageAt {
			w.Message, w.messageAt = cut(text, maxText), seq
		}
	}
	r.message(Message{seq, cut(p.URN, maxURN), "policy", cut(text, maxMessage)})
}

// message keeps the messages with the lowest sequence numbers, but errors rather than others.
func (r *Reducer) message(m Message) {
	at, _ := slices.BinarySearchFunc(r.messages, m, compareMessages)
	if at >= maxMessages {
		r.extra++
		return
	}
	r.messages = slices.Insert(r.messages, at, m)
	if len(r.messages) > maxMessages {
		r.messages, r.extra = r.messages[:maxMessages], r.extra+1
	}
}

func compareMessages(a, b Message) int {
	if d := severityRank(a.Severity) - severityRank(b.Severity); d != 0 {
		return d
	}
	return int(min(1, max(-1, a.Sequence-b.Sequence)))
}

func severityRank(s string) int {
	switch s {
	case "error":
		return 0
	case "policy":
		return 1
	case "warning":
		return 2
	default:
		return 3
	}
}

func (r *Reducer) note(seq int64, p *progressEvent) {
	if r.progress == nil {
		r.progress = map[string]progress{}
	}
	id := cut(p.ID, maxText)
	old, ok := r.progress[id]
	if ok && old.at > seq || !ok && len(r.progress) >= maxMessages {
		return
	}
	r.progress[id] = progress{at: seq, text: cut(Plain(p.Message), maxText), done: p.Done}
}

// Tree returns the present state.
func (r *Reducer) Tree() Tree {
	t := Tree{
		Rows: make([]Row, 0, len(r.rows)), Totals: map[string]int{}, Omitted: len(r.omitted), Messages: slices.Clone(r.messages),
		OmittedMessages: r.extra, Cancelled: r.cancelled, Began: unix(r.first), LastActivity: unix(r.last),
	}
	sorted := slices.SortedFunc(maps.Values(r.rows), func(a, b *row) int { return cmp.Compare(a.first, b.first) })
	for _, w := range sorted {
		out := w.Row
		out.Op, out.State, out.Began = opName(w.op), w.state(), unix(w.beganAt)
		if (out.State == Done || out.State == Failed) && w.beganAt > 0 && w.endedAt > w.beganAt {
			out.Took = time.Duration(w.endedAt-w.beganAt) * time.Second
		}
		switch out.State {
		case Running:
			t.Running++
		case Done:
			t.Finished++
		case Failed:
			t.Failures++
		case Planned:
		}
		if out.Op != "" {
			t.Totals[out.Op]++
		}
		t.Rows = append(t.Rows, out)
	}
	for _, p := range r.progress {
		if !p.done && p.text != "" && r.summary == nil {
			t.Progress = append(t.Progress, p.text)
		}
	}
	slices.Sort(t.Progress)
	if s := r.summary; s != nil {
		t.Summarized, t.Changes = true, s.Changes
	}
	return t
}

func (w *row) state() State {
	open := w.begun &^ (w.done | w.failed)
	switch {
	case w.failed != 0:
		return Failed
	case open != 0 && !(open == 2 && w.done != 0): // the step "replace" is only a mark
		return Running
	case w.done != 0:
		return Done
	default:
		return Planned
	}
}

// Size returns an estimate of the memory of the reducer, in bytes.
func (r *Reducer) Size() int64 { return int64(len(r.rows))*900 + int64(len(r.messages))*600 + 10_000 }

func unix(t int64) time.Time {
	if t <= 0 {
		return time.Time{}
	}
	return time.Unix(t, 0).UTC()
}
