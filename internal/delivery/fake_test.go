package delivery

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/protocol"
)

type call struct {
	at     time.Time
	step   int
	offset int64
	n      int
}

// fakeServer stores log by offset and rejects gaps, like the real server. The hooks make it
// misbehave.
type fakeServer struct {
	t testing.TB

	mu      sync.Mutex
	logs    map[int][]byte
	durable map[int]int64
	calls   []call
	limit   int64
	lazy    bool // bytes become durable only on request
	// before runs first and can reject the request. after can change the response.
	before func(c call) error
	after  func(c call, ack protocol.LogAck) (protocol.LogAck, error)
}

func newFakeServer(t testing.TB) *fakeServer {
	return &fakeServer{t: t, logs: make(map[int][]byte), durable: make(map[int]int64)}
}

func (f *fakeServer) PutLog(ctx context.Context, step int, offset int64, framed []byte, _ bool) (protocol.LogAck, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return protocol.LogAck{}, err
	}
	c := call{time.Now(), step, offset, len(framed)}
	f.calls = append(f.calls, c)
	if f.before != nil {
		if err := f.before(c); err != nil {
			return protocol.LogAck{}, err
		}
	}
	have := f.logs[step]
	if offset > int64(len(have)) {
		return protocol.LogAck{}, fmt.Errorf("put: %w", &protocol.LogGapError{APIError: &protocol.APIError{}, Ack: protocol.LogAck{Received: int64(len(have))}})
	}
	known := min(len(framed), len(have)-int(offset))
	if !bytes.Equal(have[offset:offset+int64(known)], framed[:known]) {
		f.t.Errorf("step %d: bytes from %d on were sent again and differ", step, offset)
	}
	if f.limit > 0 && int64(len(have)+len(framed)-known) > f.limit {
		f.t.Errorf("step %d: %d bytes were sent, more than the limit", step, len(have)+len(framed)-known)
	}
	f.logs[step] = append(have, framed[known:]...)
	if !f.lazy || len(framed) == 0 {
		f.durable[step] = int64(len(f.logs[step]))
	}
	ack := protocol.LogAck{Received: int64(len(f.logs[step])), Durable: f.durable[step], Limit: f.limit}
	if f.after != nil {
		return f.after(c, ack)
	}
	return ack, nil
}

func (f *fakeServer) lines(step int) []string {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	return lines(f.t, f.logs[step])
}

func (f *fakeServer) seen() []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]call(nil), f.calls...)
}

func (f *fakeServer) checkSummaries(summaries []StepSummary) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, sum := range summaries {
		if want := hexSum(f.logs[sum.Step]); sum.Truncated || sum.SHA256 != want || sum.Bytes != int64(len(f.logs[sum.Step])) {
			f.t.Errorf("summary %+v, but the server has %d bytes with %s", sum, len(f.logs[sum.Step]), want)
		}
	}
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func lines(t testing.TB, log []byte) []string {
	t.Helper()
	var all []string
	var line strings.Builder
	for len(log) > 0 {
		f, n, err := protocol.ParseFrame(log)
		if err != nil {
			t.Fatalf("%v at %.60q", err, log)
		}
		log = log[n:]
		line.Write(f.Text)
		if !f.Fragment {
			all = append(all, line.String())
			line.Reset()
		}
	}
	if line.Len() > 0 {
		all = append(all, line.String()+"…")
	}
	return all
}

func stored(t testing.TB, s *Stream) []byte {
	t.Helper()
	s.mu.Lock()
	base := s.base()
	s.mu.Unlock()
	b := make([]byte, s.Size()-base)
	must(t, s.readAt(b, base))
	return b
}

func openSpool(t testing.TB, dir string, opts Options) *Spool {
	t.Helper()
	sp, err := Open(dir, opts)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := sp.Close(); err != nil {
			t.Errorf("closing the spool: %v", err)
		}
	})
	return sp
}

func openStep(t testing.TB, sp *Spool, step int) *Stream {
	t.Helper()
	s, err := sp.Step(step)
	if err != nil {
		t.Fatalf("Step: %v", err)
	}
	return s
}

func write(t testing.TB, s *Stream, text string) {
	t.Helper()
	if n, err := s.Write([]byte(text)); err != nil || n != len(text) {
		t.Fatalf("Write = %d, %v, want %d", n, err, len(text))
	}
}

// startShipper runs a shipper until the test ends or stop is called. stop returns Run's error.
func startShipper(t testing.TB, sp *Spool, sender Sender) (sh *Shipper, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	sh = NewShipper(sp, sender, ShipperOptions{Compress: true})
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = sh.Run(ctx)
	}()
	stop = func() error {
		cancel()
		<-done
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return sh, stop
}

func flush(t testing.TB, sh *Shipper) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := sh.Flush(ctx); err != nil {
		t.Fatalf("Flush: %v", err)
	}
}

func (s *Stream) SHA256() string { return s.summary().SHA256 }

func (s *Stream) Truncated() bool { return s.summary().Truncated }

func (s *Stream) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
