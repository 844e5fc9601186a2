package delivery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/protocol"
)

type lineServer struct {
	t     *testing.T
	lines map[int][]string
	// after is called after lines were stored. Its error stands for a lost response.
	after func() error
}

func (l *lineServer) post(_ context.Context, step int, batch protocol.LogLines) error {
	have := l.lines[step]
	if int(batch.Offset) > len(have) {
		l.t.Errorf("step %d: lines from %d on, the server has %d", step, batch.Offset, len(have))
	}
	for i, line := range batch.Lines {
		if at := int(batch.Offset) + i; at >= len(l.lines[step]) {
			l.lines[step] = append(l.lines[step], line.Line)
		} else if have[at] != line.Line {
			l.t.Errorf("step %d: line %d was %q and came again as %q", step, at, have[at], line.Line)
		}
	}
	if l.after != nil {
		return l.after()
	}
	return nil
}

func openLines(t *testing.T, dir string) *Spool {
	t.Helper()
	sp, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return sp
}

func TestLinesWhereverTheStreamIsCut(t *testing.T) {
	var stream []byte
	now := time.Now()
	stream = protocol.AppendFrame(stream, now, false, []byte("first"))
	stream = protocol.AppendFrame(stream, now, true, []byte("a line "))
	stream = protocol.AppendFrame(stream, now, true, []byte("in three "))
	stream = protocol.AppendFrame(stream, now, false, []byte("parts"))
	stream = protocol.AppendFrame(stream, now, false, nil)
	want := []string{"first", "a line in three parts", ""}
	dir := t.TempDir()
	for cut := range len(stream) + 1 {
		for _, restart := range []bool{false, true} {
			server := &lineServer{t: t, lines: map[int][]string{}}
			path := fmt.Sprintf("%s/%d-%t", dir, cut, restart)
			sp := openLines(t, path)
			sender := NewLineSender(sp, server.post)
			ack, err := sender.PutLog(t.Context(), 1, 0, stream[:cut], false)
			if err != nil {
				t.Fatal(err)
			}
			if restart {
				must(t, sp.Close())
				sp = openLines(t, path)
				sender = NewLineSender(sp, server.post)
				if ack, err = sender.PutLog(t.Context(), 1, ack.Durable, nil, false); err != nil {
					t.Fatal(err)
				}
			}
			ack, err = sender.PutLog(t.Context(), 1, ack.Received, stream[ack.Received:], false)
			if err != nil || ack.Received != int64(len(stream)) || ack.Durable != ack.Received {
				t.Errorf("cut at %d: %+v, %v; want all %d", cut, ack, err, len(stream))
			}
			if diff := cmp.Diff(want, server.lines[1]); diff != "" {
				t.Errorf("cut at %d, restart %t: %s", cut, restart, diff)
			}
			must(t, sp.Close())
		}
	}
}

// TestLinesContinueInAnotherProcess checks that each line is sent with exactly one number, although
// some responses are lost.
func TestLinesContinueInAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	server := &lineServer{t: t, lines: map[int][]string{}}
	var want []string
	for process := range 20 {
		sp := openLines(t, dir)
		stream, err := sp.Step(2)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			line := fmt.Sprintf("process %d line %d", process, i)
			want = append(want, line)
			for _, part := range strings.SplitAfter(line+"\n", " ") {
				if _, err := stream.Write([]byte(part)); err != nil {
					t.Fatal(err)
				}
			}
		}
		lost := 0
		server.after = func() error {
			if lost++; process%3 == 1 && lost == 1 {
				return errors.New("the response was lost")
			}
			return nil
		}
		shipper := NewShipper(sp, NewLineSender(sp, server.post), ShipperOptions{})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- shipper.Run(ctx) }()
		if process%2 == 0 {
			limited, cancel := context.WithTimeout(ctx, time.Minute)
			must(t, shipper.Flush(limited))
			cancel()
		}
		stop()
		must(t, <-done)
		must(t, sp.Close())
	}
	sp := openLines(t, dir)
	defer sp.Close()
	server.after = nil
	shipper := NewShipper(sp, NewLineSender(sp, server.post), ShipperOptions{})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	done := make(chan error)
	go func() { done <- shipper.Run(ctx) }()
	must(t, shipper.Flush(ctx))
	stop()
	<-done
	if diff := cmp.Diff(want, server.lines[2]); diff != "" {
		t.Error(diff)
	}
}

func TestLongLinesAreCutTheSameWayEachTime(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 20_000) // 320 kB
	cut := func(requests int) []string {
		server := &lineServer{t: t, lines: map[int][]string{}}
		sp := openLines(t, t.TempDir())
		defer sp.Close()
		sender := NewLineSender(sp, server.post)
		var stream []byte
		for part := range strings.SplitSeq(text, "f") {
			stream = protocol.AppendFrame(stream, time.Now(), true, []byte(part))
		}
		stream = protocol.AppendFrame(stream, time.Now(), false, nil)
		offset := int64(0)
		for i := range requests {
			end := len(stream) * (i + 1) / requests
			ack, err := sender.PutLog(t.Context(), 1, offset, stream[offset:end], false)
			if err != nil {
				t.Fatal(err)
			}
			offset = ack.Received
		}
		return server.lines[1]
	}
	once := cut(1)
	if len(once) < 4 || strings.Join(once, "") != strings.ReplaceAll(text, "f", "") {
		t.Errorf("%d lines", len(once))
	}
	if diff := cmp.Diff(once, cut(37)); diff != "" {
		t.Error(diff)
	}
}

func TestLinesAlreadySentAreNotSentAgain(t *testing.T) {
	sp := openLines(t, t.TempDir())
	defer sp.Close()
	server := &lineServer{t: t, lines: map[int][]string{}}
	sender := NewLineSender(sp, server.post)
	stream := protocol.AppendFrame(nil, time.Now(), false, []byte("one"))
	ack, err := sender.PutLog(t.Context(), 1, 0, stream, false)
	if err != nil {
		t.Fatal(err)
	}
	again, err := sender.PutLog(t.Context(), 1, 0, stream, false)
	if err != nil || again != ack || len(server.lines[1]) != 1 {
		t.Errorf("got %+v, %v and %q, want %+v and nothing sent again", again, err, server.lines[1], ack)
	}
}
