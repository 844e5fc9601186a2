package api_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/workflow"
)

// TestReaderWaitsForReportedLines reports the size of a step's log before its last line arrives, as a slow
// runner does. A reader must receive the line in its place: the CLI stops reading the log at pulumi's step.
func TestReaderWaitsForReportedLines(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	path := l.deployable("dev")
	id := l.deploy(path, "update")
	_, jc := l.start("a")
	setup, source, deps := &step{t: t, jc: jc}, &step{t: t, jc: jc, index: 1}, &step{t: t, jc: jc, index: 2}
	setup.ended()
	source.status(workflow.StepRunning)
	source.say("early")
	last := protocol.AppendFrame(nil, time.Unix(1700000000, 0), false, []byte("late"))
	source.sent = append(source.sent, last...)
	source.ended()
	deps.status(workflow.StepRunning)
	deps.say("next")
	text, token := l.logFrom(path, id, "")
	if text != "[Setup]\n[Get source]\nearly\n" {
		t.Fatalf("log:\n%s", text)
	}
	source.sent = source.sent[:len(source.sent)-len(last)]
	source.say("late")
	if text, _ = l.logFrom(path, id, token); text != "late\n[Download dependencies]\nnext\n" {
		t.Errorf("the end:\n%s", text)
	}
}

// TestLateLines delivers lines of a step after a reader has moved to the next step. The reader must
// still receive them.
func TestLateLines(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	path := l.deployable("dev")
	id := l.deploy(path, "update")
	_, jc := l.start("a")
	setup, source, deps := &step{t: t, jc: jc}, &step{t: t, jc: jc, index: 1}, &step{t: t, jc: jc, index: 2}
	setup.status(workflow.StepSucceeded)
	source.status(workflow.StepRunning)
	source.say("early")
	source.status(workflow.StepSucceeded)
	deps.status(workflow.StepRunning)
	deps.say("next")
	text, token := l.logFrom(path, id, "")
	if text != "[Setup]\n[Get source]\nearly\n[Download dependencies]\nnext\n" {
		t.Fatalf("log:\n%s", text)
	}
	source.say("late")
	l.end(jc, workflow.StatusSucceeded)
	if text, token = l.logFrom(path, id, token); text != "[Get source (late lines)]\nlate\n" || token != "" {
		t.Errorf("the end:\n%s%s", text, token)
	}
	if text = l.wholeLog(path, id); text != "[Setup]\n[Get source]\nearly\nlate\n[Download dependencies]\nnext\n" {
		t.Errorf("read afterwards:\n%s", text)
	}
}

func TestResultWaitsForLog(t *testing.T) {
	eachLab(t, deployments.Options{LogLimit: 2000}, func(t *testing.T, l *lab) {
		path := l.deployable("dev")
		id := l.deploy(path, "update")
		_, jc := l.start("a")
		s := &step{t: t, jc: jc, index: 1}
		s.say("one")
		r := protocol.ResultRequest{Status: workflow.StatusSucceeded, FinishedAt: time.Now(), Steps: []protocol.StepResult{s.result()}}
		r.Steps[0].Bytes += 10
		var conflict *protocol.ResultConflictError
		if err := jc.Result(t.Context(), r); !errors.As(err, &conflict) || conflict.Missing[0] != (protocol.MissingLog{Step: 1, Received: int64(len(s.sent))}) {
			t.Fatalf("result with missing log: %v", err)
		}
		if d := l.details(path, id); d.Status != "running" {
			t.Errorf("status = %s", d.Status)
		}
		for _, bad := range []protocol.ResultRequest{
			{Status: "running"}, {Status: workflow.StatusFailed, Steps: []protocol.StepResult{{Step: 99}}},
		} {
			wantCode(t, "a bad result", jc.Result(t.Context(), bad), 400)
		}
		// If the agent no longer has a part of the log, it reports that part as gone, and the
		// server accepts the result.
		r.Steps[0].Gone = true
		r.Steps = append(r.Steps, protocol.StepResult{Step: 0, Bytes: 0, SHA256: strings.Repeat("0", 64)})
		if err := jc.Result(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		d := l.details(path, id)
		if d.Status != "succeeded" || len(d.Notes) != 2 || !strings.Contains(d.Notes[0], "incomplete") || !strings.Contains(d.Notes[1], "checksums differ") {
			t.Errorf("details = %+v", d)
		}
		if text := l.wholeLog(path, id); !strings.Contains(text, "[Server]\n") || !strings.Contains(text, "is incomplete") {
			t.Errorf("log:\n%s", text)
		}
	})
}

// TestLogPagesAreBounded reads long lines: a thousand of them can have 64 MiB, and more as escaped
// JSON. The size of each page must be bounded, and together the pages must contain every line.
func TestLogPagesAreBounded(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	path := l.deployable("dev")
	id := l.deploy(path, "update")
	_, jc := l.start("a")
	s := &step{t: t, jc: jc, index: 1}
	const lines = 150
	for range lines {
		s.say(strings.Repeat(`"`, protocol.MaxFrameText))
	}
	l.end(jc, workflow.StatusSucceeded)
	const most = 3 << 20 // 1 MiB and a line, of characters that JSON escapes
	read := func(query string) (page logPage, count int) {
		a := l.do("GET", path+"/"+id+"/logs?"+query, nil).want(200, &page)
		if len(a.Body) > most {
			t.Fatalf("a page with %q has %d bytes, want at most %d", query, len(a.Body), most)
		}
		return page, strings.Count(page.text(), "\n")
	}
	if _, n := read("job=0&step=1&offset=0&count=499"); n == 0 {
		t.Error("the page of the step has no line")
	}
	all := 0
	for token, pages := "", 0; ; pages++ {
		page, n := read("continuationToken=" + url.QueryEscape(token))
		if all += n; page.NextToken == "" {
			break
		}
		if token = page.NextToken; pages > lines {
			t.Fatal("the log has no end")
		}
	}
	if all < lines { // all includes headers
		t.Errorf("the pages have %d lines, want %d", all, lines)
	}
}

func TestLogLimit(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{LogLimit: 100})
	path := l.deployable("dev")
	l.deploy(path, "update")
	_, jc := l.start("a")
	frames := protocol.AppendFrame(nil, time.Now(), false, bytes.Repeat([]byte("x"), 200))
	ack, err := jc.PutLog(t.Context(), 1, 0, frames, false)
	if err != nil || ack.Received != 100 || ack.Limit != 100 {
		t.Errorf("ack = %+v, %v", ack, err)
	}
	if ack, err = jc.PutLog(t.Context(), 1, 100, frames, false); err != nil || ack.Received != 100 {
		t.Errorf("after the limit: %+v, %v", ack, err)
	}
	r := protocol.ResultRequest{Status: workflow.StatusSucceeded, FinishedAt: time.Now(), Steps: []protocol.StepResult{{Step: 1, Bytes: int64(len(frames)), SHA256: "x"}}}
	if err := jc.Result(t.Context(), r); err != nil {
		t.Error(err)
	}
}

// TestLogByOffsets sends a stream in random chunks: early, repeated, overlapping or compressed. The
// stored stream must be identical.
func TestLogByOffsets(t *testing.T) {
	eachLab(t, deployments.Options{LogSync: 5 * time.Millisecond}, func(t *testing.T, l *lab) {
		path := l.deployable("dev")
		id := l.deploy(path, "update")
		_, jc := l.start("a")
		rnd := rand.New(rand.NewPCG(1, 2))
		var stream []byte
		var want strings.Builder
		for i := range 400 {
			text := fmt.Sprintf("line %d %s", i, strings.Repeat("ä\x1b[1m", rnd.IntN(40)))
			stream = protocol.AppendFrame(stream, time.Unix(int64(i), 0), false, []byte(text))
			want.WriteString(text + "\n")
		}
		long := strings.Repeat("y", 3*protocol.MaxFrameText)
		stream = protocol.AppendFrame(stream, time.Unix(1, 0), false, []byte(long))
		stream = protocol.AppendFrame(stream, time.Unix(1, 0), false, []byte("bin\xff\xfe\x00"))
		want.WriteString(long + "\n" + "bin\uFFFD\uFFFD\n") // the server drops the control character
		var at int64
		for at < int64(len(stream)) {
			offset := max(0, at+int64(rnd.IntN(4000))-2000)
			end := min(int64(len(stream)), offset+int64(rnd.IntN(5000)))
			if offset >= end {
				continue
			}
			ack, err := jc.PutLog(t.Context(), 1, offset, stream[offset:end], rnd.IntN(2) == 0)
			if gap, ok := errors.AsType[*protocol.LogGapError](err); ok {
				if offset <= at {
					t.Fatalf("offset %d was refused at %d", offset, at)
				}
				ack = gap.Ack
			} else if err != nil {
				t.Fatal(err)
			} else if offset > at {
				t.Fatalf("a gap was accepted: offset %d at %d", offset, at)
			} else {
				at = max(at, end)
			}
			if ack.Received != at || ack.Durable > at {
				t.Fatalf("ack %+v at %d", ack, at)
			}
		}
		ack, err := jc.PutLog(t.Context(), 1, at, nil, false)
		if err != nil || ack.Durable != at {
			t.Errorf("an empty chunk: %+v, %v", ack, err)
		}
		sum := sha256.Sum256(stream)
		r := protocol.ResultRequest{
			Status: workflow.StatusSucceeded, FinishedAt: time.Now(),
			Steps: []protocol.StepResult{{Step: 1, Bytes: at, SHA256: hex.EncodeToString(sum[:])}},
		}
		if err := jc.Result(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if d := l.details(path, id); len(d.Notes) != 0 {
			t.Errorf("notes: %v", d.Notes)
		}
		if got := l.wholeLog(path, id); got != "[Get source]\n"+want.String() {
			t.Errorf("the log differs: %d bytes, want %d", len(got), want.Len())
		}
		l.stepMode(path, id, want.String())
	})
}

func (l *lab) stepMode(path, id, want string) {
	l.t.Helper()
	var got strings.Builder
	offset := int64(0)
	for {
		var page struct {
			Type       string `json:"__type"`
			Name       string
			Lines      []struct{ Line string }
			NextOffset *int64
		}
		l.do("GET", fmt.Sprintf("%s/%s/logs?job=0&step=1&offset=%d&count=37", path, id, offset), nil).want(200, &page)
		if page.Type != "DeploymentLogsStep" || page.Name != "Get source" {
			l.t.Fatalf("page = %+v", page)
		}
		for _, line := range page.Lines {
			got.WriteString(line.Line)
		}
		if page.NextOffset == nil {
			break
		}
		offset = *page.NextOffset
	}
	if got.String() != want {
		l.t.Errorf("the step's log differs: %d bytes, want %d", got.Len(), len(want))
	}
	for _, query := range []string{"count=0", "count=500", "count=x", "offset=-1"} {
		l.do("GET", path+"/"+id+"/logs?job=0&step=1&"+query, nil).want(400, nil)
	}
	l.do("GET", path+"/"+id+"/logs?job=0&step=99", nil).want(404, nil)
	l.do("GET", path+"/"+id+"/logs?job=1&step=0", nil).want(404, nil)
	for _, token := range []string{"x", "1.2.3", "0.0.0.0", "1.-1.0.0", "1.1.1.999.", "1.1.0.0.x", "1.1.0.0.-1"} {
		l.do("GET", path+"/"+id+"/logs?continuationToken="+token, nil).want(400, nil)
	}
}
