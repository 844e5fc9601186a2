package joblog

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/blob"
	"workflowagent/internal/workflow"
)

// viewed is a log with one step, and the lines that were put into it.
type viewed struct {
	t     testing.TB
	logs  *Store
	job   store.Job
	size  int64
	lines []string
}

func newViewed(t testing.TB) *viewed {
	t.Helper()
	files, err := blob.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	return &viewed{
		t: t, logs: New(files, true, 1<<30, 0, logrus.NewEntry(log)),
		job: store.Job{ID: "job", Epoch: 1, Status: workflow.StatusRunning, Steps: []store.StepState{{Name: "Setup"}}},
	}
}

func (v *viewed) add(lines ...string) {
	v.t.Helper()
	var framed []byte
	for _, line := range lines {
		framed = protocol.AppendFrame(framed, time.Unix(1, 0), false, []byte(line))
	}
	if _, err := v.logs.Put(v.t.Context(), Key(v.job.ID, 1, 0), v.size, framed); err != nil {
		v.t.Fatal(err)
	}
	v.size += int64(len(framed))
	v.lines = append(v.lines, lines...)
}

func (v *viewed) rows(from int64, count int) Rows {
	v.t.Helper()
	part, err := v.logs.Rows(v.t.Context(), v.job, 1, 0, from, count, false)
	if err != nil {
		v.t.Fatalf("reading %d rows from %d: %v", count, from, err)
	}
	return part
}

func texts(rows []Row) []string {
	out := []string{}
	for _, r := range rows {
		out = append(out, r.Text)
	}
	return out
}

// TestRows reads random ranges of a log that grows between the reads.
func TestRows(t *testing.T) {
	v, random := newViewed(t), rand.New(rand.NewPCG(1, 2))
	for round := range 25 {
		var lines []string
		for range random.IntN(700) {
			lines = append(lines, fmt.Sprintf("line %d of round %d %s", len(v.lines)+len(lines), round, strings.Repeat("x", random.IntN(200))))
		}
		v.add(lines...)
		for range 6 {
			from, count := random.IntN(len(v.lines)+10), 1+random.IntN(MaxRows)
			part := v.rows(int64(from), count)
			want := []string{}
			if from < len(v.lines) {
				want = v.lines[from:min(len(v.lines), from+len(part.Rows))]
			}
			if diff := cmp.Diff(want, texts(part.Rows)); diff != "" || len(part.Rows) == 0 && from < len(v.lines) {
				t.Fatalf("%d rows from %d of %d (-want +got):\n%s", count, from, len(v.lines), diff)
			}
			if part.Lines < int64(min(from+len(part.Rows), len(v.lines))) || part.Lines > int64(len(v.lines)) {
				t.Errorf("the stream has %d lines, want %d", part.Lines, len(v.lines))
			}
		}
		counts, err := v.logs.Counts(t.Context(), v.job, 1)
		if err != nil || counts[0] != int64(len(v.lines)) {
			t.Fatalf("counts %v, %v, want %d", counts, err, len(v.lines))
		}
	}
}

func TestHostileRows(t *testing.T) {
	v := newViewed(t)
	v.add("a\rb\rc", "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[2J", "bad \xff\xfe bytes", "</script>", strings.Repeat("y", 3*maxRowText), "nul \x00 here", "error: broken", "warning: odd")
	part := v.rows(0, 100)
	got := texts(part.Rows)
	for i, want := range []string{"c", "\x1b[31mred\x1b[0m", "", "</script>", "", "", "error: broken", "warning: odd"} {
		if want != "" && got[i] != want {
			t.Errorf("line %d is %q, want %q", i, got[i], want)
		}
	}
	if !part.Rows[4].Cut || len(got[4]) > maxRowText {
		t.Errorf("the long line has %d bytes, cut %v", len(got[4]), part.Rows[4].Cut)
	}
	if strings.ContainsRune(got[5], 0) {
		t.Errorf("the line %q contains a NUL", got[5])
	}
	if part.Rows[6].Severity != Error || part.Rows[7].Severity != Warning || part.Rows[3].Severity != Normal {
		t.Errorf("severities %v %v %v", part.Rows[6].Severity, part.Rows[7].Severity, part.Rows[3].Severity)
	}
	whole, err := v.logs.Rows(t.Context(), v.job, 1, 0, 4, 1, true)
	if err != nil || len(whole.Rows) != 1 || len(whole.Rows[0].Text) != 3*maxRowText {
		t.Errorf("the whole line was not read: %v", err)
	}
}

func TestFind(t *testing.T) {
	v := newViewed(t)
	for i := range 3000 {
		v.add(fmt.Sprintf("Line %d", i))
	}
	v.add("error: \x1b[31mNo\x1b[0m bucket")
	for name, c := range map[string]struct {
		query Query
		total int64
		first int64
	}{
		"text":             {Query{Text: "line 77"}, 11, 77}, // 77, 770 to 779
		"case":             {Query{Text: "line 77", Case: true}, 0, -1},
		"regexp":           {Query{Text: `^line 1\d\d$`, Regexp: true}, 100, 100},
		"more than shown":  {Query{Text: "line"}, 3000, 0},
		"through colours":  {Query{Text: "no bucket"}, 1, 3000},
		"errors":           {Query{Errors: true}, 1, 3000},
		"meta is no regex": {Query{Text: "line ."}, 0, -1},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := v.logs.Find(t.Context(), v.job, 1, c.query)
			if err != nil {
				t.Fatal(err)
			}
			first := int64(-1)
			if len(found.Hits) > 0 {
				first = found.Hits[0].Line
			}
			if found.Total != c.total || first != c.first || len(found.Hits) > 1000 || found.Partial {
				t.Errorf("found %d, first in line %d, %d hits, partial %v; want %d, %d", found.Total, first, len(found.Hits), found.Partial, c.total, c.first)
			}
		})
	}
	if _, err := v.logs.Find(t.Context(), v.job, 1, Query{Text: "(", Regexp: true}); fault.KindOf(err) != fault.KindInvalid {
		t.Errorf("a broken regular expression: %v", err)
	}
}
