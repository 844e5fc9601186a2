package delivery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/protocol"
)

func TestShippingTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer(t)
		sp := openSpool(t, t.TempDir(), Options{})
		s := openStep(t, sp, 1)
		startShipper(t, sp, server)
		start := time.Now()
		expect := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for _, c := range server.seen() {
				got = append(got, fmt.Sprintf("%v: step %d, %d KiB", c.at.Sub(start), c.step, c.n>>10))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
			server.mu.Lock()
			server.calls = nil
			server.mu.Unlock()
			start = time.Now()
		}
		write(t, s, "first\n")
		time.Sleep(40 * time.Millisecond)
		write(t, s, "second\n") // must not delay the first
		time.Sleep(time.Second)
		expect("50 ms after the first byte", "50ms: step 1, 0 KiB")
		kib := strings.Repeat(strings.Repeat("x", 1023-28)+"\n", 1)
		write(t, s, strings.Repeat(kib, 100))
		time.Sleep(10 * time.Millisecond)
		write(t, s, strings.Repeat(kib, 200))
		expect("at 256 KiB", "10ms: step 1, 300 KiB")
		other := openStep(t, sp, 0)
		write(t, s, "later step\n")
		time.Sleep(time.Millisecond)
		write(t, other, "earlier step\n")
		must(t, s.Close())
		expect("at the end of a stream", "1ms: step 1, 0 KiB")
		time.Sleep(time.Minute)
		expect("the other stream", "50ms: step 0, 0 KiB")
		write(t, other, strings.Repeat(kib, 4000))
		time.Sleep(time.Minute)
		total := 0
		for _, c := range server.seen() {
			total += c.n
			if c.n > maxRequest {
				t.Errorf("a request carried %d bytes", c.n)
			}
		}
		if len(server.seen()) < 4 || total>>10 != 4000 {
			t.Errorf("%d requests for %d bytes", len(server.seen()), total)
		}
	})
}

type refusal struct {
	after     time.Duration
	permanent bool
}

func (r refusal) Error() string             { return "refused" }
func (r refusal) RetryAfter() time.Duration { return r.after }
func (r refusal) Permanent() bool           { return r.permanent }

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer(t)
		err := errors.New("connection refused")
		server.before = func(call) error { return err }
		sp := openSpool(t, t.TempDir(), Options{})
		s := openStep(t, sp, 0)
		sh, _ := startShipper(t, sp, server)
		write(t, s, "line\n")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		calls := server.seen()
		for i := 1; i < len(calls); i++ {
			want := min(sendRetry.Max, sendRetry.First<<min(i-1, 10))
			if gap := calls[i].at.Sub(calls[i-1].at); gap < want/2 || gap > want+time.Millisecond {
				t.Errorf("attempt %d after %v, want %v to %v", i, gap, want/2, want)
			}
		}
		if len(calls) < 20 {
			t.Errorf("%d attempts in 5 minutes", len(calls))
		}

		server.mu.Lock()
		err = fmt.Errorf("put: %w", refusal{after: 24 * time.Hour})
		server.calls = nil
		server.mu.Unlock()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		calls = server.seen()
		if len(calls) < 2 {
			t.Fatalf("%d attempts in 5 minutes: Retry-After is not capped", len(calls))
		}
		if gap := calls[1].at.Sub(calls[0].at); gap < maxRetryAfter || gap > maxRetryAfter*11/10+time.Millisecond {
			t.Errorf("asked to wait for a day, waited %v", gap)
		}

		server.mu.Lock()
		err = errors.New("bad gateway")
		server.mu.Unlock()
		time.Sleep(10 * time.Minute)
		down := time.AfterFunc(10*time.Second, func() {
			server.mu.Lock()
			defer server.mu.Unlock()
			err = nil
		})
		defer down.Stop()
		start := time.Now()
		flush(t, sh)
		if late := time.Since(start) - 10*time.Second; late < 0 || late > 2*time.Second {
			t.Errorf("Flush returned %v after the server was back", late)
		}
	})
}

func TestGoneStopsShippingButNotWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer(t)
		server.before = func(call) error { return fmt.Errorf("put: %w", &protocol.APIError{Code: 410}) }
		sp := openSpool(t, t.TempDir(), Options{})
		s := openStep(t, sp, 0)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		sh := NewShipper(sp, server, ShipperOptions{})
		flushed := make(chan error)
		go func() { flushed <- sh.Flush(ctx) }()
		write(t, s, "line\n")
		synctest.Wait()
		go func() { flushed <- sh.Flush(ctx) }()
		if err := sh.Run(ctx); !protocol.Gone(err) {
			t.Errorf("Run: %v", err)
		}
		var refused int
		for range 2 {
			if err := <-flushed; protocol.Gone(err) {
				refused++
			} else if err != nil {
				t.Errorf("Flush: %v", err)
			}
		}
		if refused == 0 {
			t.Error("Flush did not report that shipping has stopped")
		}
		write(t, s, "another\n")
		if len(server.seen()) != 1 {
			t.Errorf("%d requests", len(server.seen()))
		}
	})
}

// TestRefusedLogStopsNoOther checks that the logs of other steps arrive although the server rejects
// the log of one step.
func TestRefusedLogStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer(t)
		server.before = func(c call) error {
			if c.step == 1 {
				return fmt.Errorf("put: %w", refusal{permanent: true})
			}
			return nil
		}
		sp := openSpool(t, t.TempDir(), Options{})
		ctx, cancel := context.WithCancel(t.Context())
		sh := NewShipper(sp, server, ShipperOptions{})
		done := make(chan error, 1)
		go func() { done <- sh.Run(ctx) }()
		for step := range 3 {
			write(t, openStep(t, sp, step), fmt.Sprintf("line of step %d\n", step))
			synctest.Wait()
		}
		for range 2 {
			if err := sh.Flush(ctx); !errors.As(err, new(refusal)) {
				t.Errorf("Flush: %v", err)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		asked := 0
		for _, c := range server.seen() {
			if c.step == 1 {
				asked++
			}
		}
		if asked != 1 || len(server.logs[0]) == 0 || len(server.logs[2]) == 0 {
			t.Errorf("%d requests for the refused log; of the others %d and %d bytes arrived", asked, len(server.logs[0]), len(server.logs[2]))
		}
	})
}

func TestFlushRequestsUntilDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer(t)
		server.lazy = true
		asked := 0
		server.after = func(c call, ack protocol.LogAck) (protocol.LogAck, error) {
			if c.n == 0 {
				if asked++; asked < 5 {
					ack.Durable = 0
				}
			}
			return ack, nil
		}
		sp := openSpool(t, t.TempDir(), Options{})
		s := openStep(t, sp, 0)
		sh, _ := startShipper(t, sp, server)
		write(t, s, "line\n")
		time.Sleep(time.Minute)
		if len(server.seen()) != 1 {
			t.Errorf("%d requests without need", len(server.seen())-1)
		}
		if written, pending := sp.Progress(); written != s.Size() || pending != 0 {
			t.Errorf("after delivery, %d of %d bytes are pending, want 0 of %d", pending, written, s.Size())
		}
		start := time.Now()
		flush(t, sh)
		if received, durable := s.Acked(); received != s.Size() || durable != s.Size() || asked != 5 {
			t.Errorf("received %d, durable %d of %d, asked %d times", received, durable, s.Size(), asked)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("Flush took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		server.mu.Lock()
		server.before = func(call) error { return errors.New("down") }
		server.mu.Unlock()
		write(t, s, "line\n")
		if err := sh.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush without a server: %v", err)
		}
	})
}

func TestServerLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer(t)
		server.limit = 10_000
		sp := openSpool(t, t.TempDir(), Options{Limit: 1 << 20})
		small, big := openStep(t, sp, 0), openStep(t, sp, 1)
		sh, _ := startShipper(t, sp, server)
		write(t, small, strings.Repeat("fits\n", 100))
		write(t, big, "first\n")
		flush(t, sh)
		for range 3000 { // three times the spool's limit
			write(t, big, strings.Repeat("x", 999)+"\n")
			time.Sleep(time.Millisecond)
		}
		flush(t, sh)
		if small.Truncated() || !big.Truncated() {
			t.Errorf("truncated: %v and %v", small.Truncated(), big.Truncated())
		}
		if got := len(server.lines(1)); got != 1+9 {
			t.Errorf("the server has %d lines, want those that fit", got)
		}
		write(t, small, "more\n")
		flush(t, sh)
		if got := len(server.lines(0)); got != 101 {
			t.Errorf("the other stream has %d lines", got)
		}
	})
}

// TestFaultyServer sends 100 000 lines of two steps through a server that shows every tolerated
// fault.
func TestFaultyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 50_000
		rnd := rand.New(rand.NewPCG(7, 11))
		faults := make(map[string]int)
		server := newFakeServer(t)
		server.lazy = true
		server.before = func(c call) error {
			switch rnd.IntN(12) {
			case 0:
				faults["refused"]++
				return errors.New("503 service unavailable")
			case 1:
				faults["lost bytes"]++ // a server restart loses bytes that were not durable
				d := server.durable[c.step]
				server.logs[c.step] = server.logs[c.step][:d+rnd.Int64N(int64(len(server.logs[c.step]))-d+1)]
			case 2:
				faults["retry later"]++
				return refusal{after: 3 * time.Second}
			case 3:
				server.durable[c.step] = int64(len(server.logs[c.step]))
			}
			return nil
		}
		server.after = func(c call, ack protocol.LogAck) (protocol.LogAck, error) {
			switch rnd.IntN(12) {
			case 0:
				faults["lost answer"]++
				return protocol.LogAck{}, errors.New("connection reset")
			case 1:
				faults["took less"]++
				keep := max(c.offset, server.durable[c.step])
				if keep < ack.Received {
					ack.Received = keep + rnd.Int64N(ack.Received-keep)
					server.logs[c.step] = server.logs[c.step][:ack.Received]
				}
			case 2:
				faults["gap"]++
				return protocol.LogAck{}, &protocol.LogGapError{APIError: &protocol.APIError{}, Ack: protocol.LogAck{Received: ack.Received}}
			}
			return ack, nil
		}
		sp := openSpool(t, t.TempDir(), Options{Limit: 4 << 20, SegmentBytes: 256 << 10})
		sh, _ := startShipper(t, sp, server)
		var wg sync.WaitGroup
		for step := range 2 {
			s := openStep(t, sp, step)
			wg.Go(func() {
				var text strings.Builder
				for i := range count {
					fmt.Fprintf(&text, "step %d line %d %s\n", step, i, "padding padding padding padding"[:i%31])
					if i%41 == 0 || i == count-1 {
						half := text.Len() / 3
						write(t, s, text.String()[:half])
						write(t, s, text.String()[half:])
						text.Reset()
						time.Sleep(time.Duration(i%1300) * time.Millisecond)
					}
				}
				if err := s.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		}
		wg.Wait()
		flush(t, sh)
		for step := range 2 {
			got := server.lines(step)
			if len(got) != count {
				t.Fatalf("step %d: %d lines, want %d", step, len(got), count)
			}
			for i, line := range got {
				if want := fmt.Sprintf("step %d line %d %s", step, i, "padding padding padding padding"[:i%31]); line != want {
					t.Fatalf("step %d line %d is %q, want %q", step, i, line, want)
				}
			}
		}
		server.checkSummaries(sp.Summaries())
		t.Logf("%d requests, faults: %v", len(server.seen()), faults)
		for _, fault := range []string{"refused", "lost bytes", "retry later", "lost answer", "took less", "gap"} {
			if faults[fault] == 0 {
				t.Errorf("the fault %q was never tried", fault)
			}
		}
	})
}

// TestServerThatMovesBackAndForth checks that a server that accepts bytes and requests them again
// does not make the sender work at the speed of the network.
func TestServerThatMovesBackAndForth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer(t)
		server.after = func(c call, _ protocol.LogAck) (protocol.LogAck, error) {
			return protocol.LogAck{Received: int64(c.n)}, nil
		}
		sp := openSpool(t, t.TempDir(), Options{})
		s := openStep(t, sp, 1)
		startShipper(t, sp, distant{server})
		for range 4 {
			write(t, s, strings.Repeat("line\n", 100))
			time.Sleep(100 * time.Millisecond)
		}
		before := len(server.seen())
		time.Sleep(time.Minute)
		if calls := len(server.seen()) - before; calls > 2000 { // without a pause, it would be 60 000
			t.Errorf("%d requests in a minute for a log that does not grow", calls)
		}
	})
}

type distant struct{ *fakeServer }

func (d distant) PutLog(ctx context.Context, step int, offset int64, framed []byte, compress bool) (protocol.LogAck, error) {
	time.Sleep(time.Millisecond)
	return d.fakeServer.PutLog(ctx, step, offset, framed, compress)
}
