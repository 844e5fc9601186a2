package delivery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// kilobyte is a line whose frame is 1024 bytes long.
var kilobyte = strings.Repeat("x", 1024-29) + "\n"

func fill(s *Stream, count int) (done chan error) {
	done = make(chan error, 1)
	go func() {
		for range count {
			if _, err := s.Write([]byte(kilobyte)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	return done
}

func isBlocked(done chan error) bool {
	synctest.Wait()
	return len(done) == 0
}

func diskUsage(t *testing.T, dir string) (total int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	return total
}

func TestFullSpoolBlocksAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer(t)
		server.lazy = true // bytes become durable only on request
		server.before = func(call) error {
			return errors.New("down")
		}
		dir := t.TempDir()
		sp := openSpool(t, dir, Options{Limit: 1 << 20, SegmentBytes: 100 << 10})
		s := openStep(t, sp, 0)
		sh, _ := startShipper(t, sp, server)
		done := fill(s, 20<<10)
		for range 14 {
			time.Sleep(time.Minute)
			if !isBlocked(done) {
				t.Fatal("writing does not block")
			}
			if used := diskUsage(t, dir); used > 1<<20+20<<10 {
				t.Errorf("the spool takes %d bytes", used)
			}
		}
		server.mu.Lock()
		server.before = nil
		server.mu.Unlock()
		if err := <-done; err != nil {
			t.Fatalf("Write: %v", err)
		}
		if used := diskUsage(t, dir); used > 1<<20+20<<10 {
			t.Errorf("the spool takes %d bytes", used)
		}
		flush(t, sh)
		if got := len(server.lines(0)); got != 20<<10 || s.Truncated() {
			t.Errorf("the server has %d lines, truncated %v", got, s.Truncated())
		}
		server.checkSummaries(sp.Summaries())
	})
}

// TestDurableBytesMakeRoom checks that a full spool releases durable bytes even if every stream's
// segment is incomplete.
func TestDurableBytesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer(t)
		dir := t.TempDir()
		sp := openSpool(t, dir, Options{Limit: 1 << 20})
		sh, stop := startShipper(t, sp, server)
		for step := range 4 {
			must(t, <-fill(openStep(t, sp, step), 250))
		}
		last := openStep(t, sp, 4)
		done := fill(last, 30)
		if !isBlocked(done) && len(server.seen()) == 0 {
			t.Fatal("writing more than the limit does not block")
		}
		if err := <-done; err != nil || last.Truncated() {
			t.Errorf("Write: %v", err)
		}
		flush(t, sh)
		for step := range 4 {
			if n := len(server.lines(step)); n != 250 {
				t.Errorf("step %d has %d lines", step, n)
			}
		}
		must(t, stop())
		// Stored bytes that were not shipped still count towards the limit in the next process.
		must(t, <-fill(last, 10))
		again := openSpool(t, die(t, dir), Options{Limit: 1 << 20})
		done = fill(openStep(t, again, 5), 1020)
		if !isBlocked(done) {
			t.Errorf("the spool holds more than its limit (%v): %d bytes", <-done, diskUsage(t, dir))
		}
		must(t, again.Close())
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("Write: %v", err)
		}
	})
}

func TestFullSpoolDropsAfterPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer(t)
		down := errors.New("down")
		server.before = func(call) error { return down }
		sp := openSpool(t, t.TempDir(), Options{Limit: 1 << 20})
		s := openStep(t, sp, 0)
		sh, _ := startShipper(t, sp, server)
		write(t, s, "in the middle of")
		done := fill(s, 2000)
		time.Sleep(15*time.Minute - time.Second)
		if !isBlocked(done) || s.Truncated() {
			t.Fatal("output was dropped early")
		}
		time.Sleep(2 * time.Second)
		if isBlocked(done) || !s.Truncated() {
			t.Fatal("writing still blocks")
		}
		if err := <-done; err != nil {
			t.Fatalf("Write: %v", err)
		}
		server.mu.Lock()
		server.before = nil
		server.mu.Unlock()
		flush(t, sh)
		write(t, s, "after the gap\n")
		flush(t, sh)
		got := server.lines(0)
		n := len(got)
		if n < 1000 || got[n-1] != "after the gap" {
			t.Fatalf("%d lines, the last is %q", n, got[n-1])
		}
		m := regexp.MustCompile(`^\*\*\* (\d+) bytes of output dropped because the log spool was full \(1048576 bytes\) and the server accepted nothing for 15m0s \*\*\*$`).FindStringSubmatch(got[n-2])
		if m == nil {
			t.Fatalf("instead of the marker: %q", got[n-2])
		}
		if want := fmt.Sprint((2000 - (n - 2)) * len(kilobyte)); m[1] != want {
			t.Errorf("the marker says %s bytes, want %s", m[1], want)
		}
		sum := sp.Summaries()[0]
		if !sum.Truncated || sum.SHA256 != hexSum(server.logs[0]) {
			t.Errorf("summary %+v does not fit the server's log", sum)
		}
	})
}

func TestGapAtTheEndIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		sp := openSpool(t, dir, Options{Limit: 1 << 20, DropAfter: time.Minute})
		s := openStep(t, sp, 0)
		done := fill(s, 1100)
		time.Sleep(2 * time.Minute)
		must(t, <-done)
		if err := s.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
		got := lines(t, stored(t, s))
		if last := got[len(got)-1]; !strings.HasPrefix(last, "*** 76") && !strings.Contains(last, "dropped because") {
			t.Errorf("the last line is %q", last)
		}
		must(t, sp.Close())
		if again := openSpool(t, dir, Options{}); !openStep(t, again, 0).Truncated() {
			t.Error("a second process does not report the gap")
		}
	})
}

func TestLittleRoomDoesNotEndAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sp := openSpool(t, t.TempDir(), Options{Limit: 1 << 20, DropAfter: time.Minute})
		s := openStep(t, sp, 0)
		done := fill(s, 1100)
		time.Sleep(2 * time.Minute)
		if err := <-done; err != nil || !s.Truncated() {
			t.Fatalf("Write: %v, truncated %v", err, s.Truncated())
		}
		// The remaining space suffices only for a short line and the marker before it.
		sp.release(300)
		write(t, s, "short\n")
		if done := fill(s, 1); isBlocked(done) {
			t.Error("the job waits again for a spool that is as full as before")
			time.Sleep(2 * time.Minute)
		}
	})
}

func TestDiskFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip("this system has no device that is always full")
	}
	defer full.Close()
	synctest.Test(t, func(t *testing.T) {
		sp := openSpool(t, t.TempDir(), Options{DropAfter: time.Minute})
		s := openStep(t, sp, 0)
		write(t, s, "before\n")
		disk := s.segments[0].file
		swap := func(f *os.File) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.segments[0].file = f
		}
		swap(full)
		done := fill(s, 1)
		time.Sleep(50 * time.Second)
		if !isBlocked(done) {
			t.Fatalf("writing to a full disk: %v", <-done)
		}
		swap(disk)
		if err := <-done; err != nil || s.Truncated() {
			t.Errorf("Write: %v, truncated %v", err, s.Truncated())
		}
		swap(full)
		done = fill(s, 3)
		time.Sleep(2 * time.Minute)
		if err := <-done; err != nil || !s.Truncated() {
			t.Errorf("Write: %v, truncated %v", err, s.Truncated())
		}
		swap(disk)
		write(t, s, "after\n")
		got := lines(t, stored(t, s))
		if len(got) != 4 || got[0] != "before" || got[3] != "after" ||
			!strings.Contains(got[2], "2988 bytes of output dropped because the log spool could not be written for 1m0s: ") ||
			!strings.Contains(got[2], "no space left on device") {
			t.Errorf("lines: %.100q", got)
		}
		if s.SHA256() != hexSum(stored(t, s)) {
			t.Error("the hash counts what was not stored")
		}
	})
}

// TestDiskFullOfAStoppedJob checks that output is no longer waited for when the job must stop, before or
// during the wait.
func TestDiskFullOfAStoppedJob(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip("this system has no device that is always full")
	}
	defer full.Close()
	for _, before := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			stopped := make(chan struct{})
			sp := openSpool(t, t.TempDir(), Options{Stopped: stopped})
			s := openStep(t, sp, 0)
			write(t, s, "before\n")
			disk := s.segments[0].file
			s.segments[0].file = full
			began := time.Now()
			time.AfterFunc(before, func() { close(stopped) })
			synctest.Wait()
			if err := <-fill(s, 3); err != nil || !s.Truncated() {
				t.Errorf("Write: %v, truncated %v", err, s.Truncated())
			}
			if took := time.Since(began); took != before+5*time.Second {
				t.Errorf("stopped after %s: the write blocked for %s, want 5s more", before, took)
			}
			s.segments[0].file = disk
			write(t, s, "after\n")
			if got := lines(t, stored(t, s)); len(got) != 3 || !strings.Contains(got[1], "could not be written for 5s: ") {
				t.Errorf("lines: %.100q", got)
			}
		})
	}
}

func TestBlockedWriteObeys(t *testing.T) {
	cause := errors.New("the job was cancelled")
	for name, tc := range map[string]struct {
		stop func(sp *Spool, s *Stream, cancel context.CancelCauseFunc) error
		want error
	}{
		"its context":             {func(_ *Spool, _ *Stream, cancel context.CancelCauseFunc) error { cancel(cause); return nil }, cause},
		"the close of its stream": {func(_ *Spool, s *Stream, _ context.CancelCauseFunc) error { return s.Close() }, ErrClosed},
		"the close of its spool":  {func(sp *Spool, _ *Stream, _ context.CancelCauseFunc) error { return sp.Close() }, ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				sp := openSpool(t, t.TempDir(), Options{Limit: 1 << 20})
				s := openStep(t, sp, 0)
				type result struct {
					n   int
					err error
				}
				done := make(chan result, 1)
				text := strings.Repeat(kilobyte, 1500)
				go func() {
					n, err := s.WriteContext(ctx, []byte(text))
					done <- result{n, err}
				}()
				synctest.Wait()
				if len(done) > 0 {
					t.Fatalf("writing does not block: %+v", <-done)
				}
				if err := tc.stop(sp, s, cancel); err != nil {
					t.Errorf("stopping: %v", err)
				}
				if r := <-done; !errors.Is(r.err, tc.want) || r.n%len(kilobyte) != 0 || r.n == 0 || r.n > len(text) {
					t.Errorf("Write = %+v, want %v", r, tc.want)
				}
			})
		})
	}
}
