package delivery

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/protocol"
)

// die returns a copy of a spool in the state that a killed process leaves. A copy is needed because
// a killed process would also release the directory's lock.
func die(t *testing.T, dir string) (left string) {
	t.Helper()
	left = filepath.Join(t.TempDir(), "left")
	must(t, os.CopyFS(left, os.DirFS(dir)))
	return left
}

func TestAgentContinuesForADeadRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer(t)
		dir := t.TempDir()
		opts := Options{Limit: 1 << 20, SegmentBytes: 64 << 10}
		sp := openSpool(t, dir, opts)
		first, second := openStep(t, sp, 1), openStep(t, sp, 2)
		sh, stop := startShipper(t, sp, server)
		var want []string
		for i := range 5000 {
			line := fmt.Sprintf("line %d %s", i, strings.Repeat("x", 990))
			want = append(want, line)
			write(t, first, line+"\n")
		}
		must(t, first.Close())
		flush(t, sh)
		write(t, second, "shipped\n")
		flush(t, sh)
		must(t, stop())
		write(t, second, "not shipped\nand half a li")
		left := die(t, dir)

		again := openSpool(t, left, opts)
		first, second = openStep(t, again, 1), openStep(t, again, 2)
		if base := first.segments[0].start; base == 0 || diskUsage(t, left) > 1<<20 {
			t.Errorf("segments begin at %d, the directory has %d bytes: the test is about reclaimed ones", base, diskUsage(t, left))
		}
		if received, _ := second.Acked(); received == 0 {
			t.Error("the second process begins from scratch")
		}
		if !first.Ended() || second.Ended() {
			t.Errorf("ended: %v and %v", first.Ended(), second.Ended())
		}
		sh, _ = startShipper(t, again, server)
		write(t, second, "the runner died\n")
		write(t, first, "a word after the end\n")
		for _, s := range []*Stream{first, second} {
			must(t, s.Close())
		}
		flush(t, sh)
		want = append(want, "a word after the end")
		if diff := cmp.Diff(want, server.lines(1)); diff != "" {
			t.Errorf("step 1 (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"shipped", "not shipped", "and half a li", "the runner died"}, server.lines(2)); diff != "" {
			t.Errorf("step 2 (-want +got):\n%s", diff)
		}
		server.checkSummaries(again.Summaries())
	})
}

func TestStaleStateIsCorrectedByTheServer(t *testing.T) {
	for name, saved := range map[string]state{
		"behind": {received: 10, durable: 5, cut: -1},
		"ahead":  {received: 1 << 30, durable: 5, cut: -1},
		"lost":   {cut: -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newFakeServer(t)
				dir := t.TempDir()
				sp := openSpool(t, dir, Options{})
				s := openStep(t, sp, 0)
				sh, stop := startShipper(t, sp, server)
				write(t, s, strings.Repeat("line\n", 100))
				flush(t, sh)
				must(t, stop())
				write(t, s, strings.Repeat("more\n", 100))
				left := die(t, dir)
				must(t, os.WriteFile(filepath.Join(left, stepName(0, stateSuffix)), saved.encode(), 0o600))
				again := openSpool(t, left, Options{})
				sh, _ = startShipper(t, again, server)
				write(t, openStep(t, again, 0), "last\n")
				flush(t, sh)
				if got := server.lines(0); len(got) != 201 || got[200] != "last" {
					t.Errorf("the server has %d lines", len(got))
				}
				server.checkSummaries(again.Summaries())
			})
		})
	}
}

// TestMachineCrash removes the end of the spool, as a machine crash can, after the server has
// received it.
func TestMachineCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer(t)
		dir := t.TempDir()
		sp := openSpool(t, dir, Options{})
		s := openStep(t, sp, 0)
		sh, stop := startShipper(t, sp, server)
		write(t, s, "one\ntwo\nthree\nfour and a ha")
		flush(t, sh)
		must(t, stop())
		left := die(t, dir)
		must(t, os.Truncate(filepath.Join(left, segmentName(0, 0)), segmentHeader+70))
		again := openSpool(t, left, Options{})
		s = openStep(t, again, 0)
		write(t, s, "the machine crashed\n")
		sh, _ = startShipper(t, again, server)
		flush(t, sh)
		write(t, s, "going on\n")
		flush(t, sh)
		want := []string{"one", "two", "three", "four and a ha", "the machine crashed", "going on"}
		if diff := cmp.Diff(want, server.lines(0)); diff != "" {
			t.Errorf("at the server (-want +got):\n%s", diff)
		}
		if !s.Truncated() {
			t.Error("the mismatch of the spool is not reported")
		}
	})
}

func TestServerForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer(t)
		sp := openSpool(t, t.TempDir(), Options{SegmentBytes: 1 << 10})
		s, other := openStep(t, sp, 0), openStep(t, sp, 1)
		sh, _ := startShipper(t, sp, server)
		write(t, s, strings.Repeat("line\n", 100))
		write(t, s, strings.Repeat("line\n", 100))
		flush(t, sh)
		server.mu.Lock()
		server.logs[0], server.durable[0] = nil, 0
		server.mu.Unlock()
		write(t, s, "more\n")
		write(t, other, "another stream\n")
		flush(t, sh)
		if !s.Truncated() || other.Truncated() {
			t.Errorf("truncated: %v and %v", s.Truncated(), other.Truncated())
		}
		before := len(server.seen())
		write(t, s, "never sent\n")
		time.Sleep(time.Minute)
		flush(t, sh)
		if n := len(server.seen()) - before; n > 0 {
			t.Errorf("%d requests for a stream that cannot be shipped", n)
		}
		if diff := cmp.Diff([]string{"another stream"}, server.lines(1)); diff != "" {
			t.Errorf("the other stream (-want +got):\n%s", diff)
		}
	})
}

func TestLyingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer(t)
		lie := protocol.LogAck{Received: 1 << 60, Durable: 1 << 60}
		server.after = func(call, protocol.LogAck) (protocol.LogAck, error) { return lie, nil }
		sp := openSpool(t, t.TempDir(), Options{})
		s := openStep(t, sp, 0)
		sh, _ := startShipper(t, sp, server)
		write(t, s, "line\n")
		flush(t, sh)
		lie = protocol.LogAck{Received: -1, Durable: -1}
		write(t, s, "line\n")
		time.Sleep(time.Hour)
		if n := len(server.seen()); !s.Truncated() || n > 400 {
			t.Errorf("truncated %v after %d requests", s.Truncated(), n)
		}
		if s.Size() != int64(len(stored(t, s))) {
			t.Errorf("%d bytes", s.Size())
		}
	})
}
