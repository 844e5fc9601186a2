package delivery

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/protocol"
)

func TestWriteSplitsLines(t *testing.T) {
	sp := openSpool(t, t.TempDir(), Options{})
	s := openStep(t, sp, 3)
	long := strings.Repeat("x", 2*protocol.MaxFrameText+5)
	for _, text := range []string{"one\ntwo\n", "thr", "", "ee\n\nfi", "ve", "\n" + long, "\nprogress\rbar\x00\n", "no newline"} {
		write(t, s, text)
	}
	want := []string{"one", "two", "three", "", "five", long, "progress\rbar\x00", "no newline…"}
	if diff := cmp.Diff(want, lines(t, stored(t, s))); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	want[len(want)-1] = "no newline"
	log := stored(t, s)
	if diff := cmp.Diff(want, lines(t, log)); diff != "" {
		t.Errorf("lines after Close (-want +got):\n%s", diff)
	}
	if s.SHA256() != hexSum(log) || s.Size() != int64(len(log)) || s.Truncated() || !s.Ended() {
		t.Errorf("%d bytes, %s, truncated %v, ended %v", s.Size(), s.SHA256(), s.Truncated(), s.Ended())
	}
	if _, err := s.Write([]byte("late")); !errors.Is(err, ErrClosed) {
		t.Errorf("Write after Close: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestBigWritesAreBatched(t *testing.T) {
	sp := openSpool(t, t.TempDir(), Options{SegmentBytes: 1 << 20})
	s := openStep(t, sp, 0)
	text := strings.Repeat("\n", 200_000)
	write(t, s, text)
	if got := len(lines(t, stored(t, s))); got != len(text) {
		t.Errorf("%d lines, want %d", got, len(text))
	}
	if limit := 2 * batchBytes; cap(s.frames) > limit {
		t.Errorf("the buffer has grown to %d bytes, more than %d", cap(s.frames), limit)
	}
	if len(s.segments) < 5 {
		t.Errorf("%d segments", len(s.segments))
	}
}

func TestSpoolIsPrivateAndLocked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	sp := openSpool(t, dir, Options{})
	s := openStep(t, sp, 1)
	write(t, s, "line\n")
	must(t, s.Close())
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if want := fs.FileMode(0o600); err == nil && !e.IsDir() && info.Mode() != want {
			t.Errorf("%s has mode %v", path, info.Mode())
		} else if err == nil && e.IsDir() && info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second Open: %v", err)
	}
	must(t, sp.Close())
	if _, err := sp.Step(2); !errors.Is(err, ErrClosed) {
		t.Errorf("Step after Close: %v", err)
	}
	again := openSpool(t, dir, Options{})
	if !openStep(t, again, 1).Ended() {
		t.Error("the end of the stream was forgotten")
	}
	for _, i := range []int{-1, maxStep + 1} {
		if _, err := again.Step(i); err == nil {
			t.Errorf("there is a step %d", i)
		}
	}
}

// TestReopenAtAnyByte cuts the last file at every byte, as a crash can.
func TestReopenAtAnyByte(t *testing.T) {
	origin := filepath.Join(t.TempDir(), "origin")
	sp := openSpool(t, origin, Options{SegmentBytes: 300})
	s := openStep(t, sp, 2)
	for i := range 14 {
		write(t, s, fmt.Sprintf("line %d\n", i))
	}
	write(t, s, "a fragment")
	write(t, s, ", another")
	log := stored(t, s)
	last := s.segments[len(s.segments)-1]
	if len(s.segments) < 2 || last.size < 100 {
		t.Fatalf("%d segments, %d bytes in the last: the test needs more", len(s.segments), last.size)
	}
	must(t, sp.Close())
	for cut := int64(0); cut <= segmentHeader+last.size; cut++ {
		if cut > 1 && cut < segmentHeader-1 && cut%64 != 0 {
			continue // same result as half a header
		}
		dir := filepath.Join(t.TempDir(), "copy")
		must(t, os.CopyFS(dir, os.DirFS(origin)))
		must(t, os.Truncate(filepath.Join(dir, last.name), cut))
		whole := last.start
		for {
			_, n, err := protocol.ParseFrame(log[whole:min(int64(len(log)), last.start+max(0, cut-segmentHeader))])
			if err != nil {
				break
			}
			whole += int64(n)
		}
		again := openSpool(t, dir, Options{SegmentBytes: 300})
		s := openStep(t, again, 2)
		info, err := os.Stat(filepath.Join(dir, last.name))
		if cut >= segmentHeader && (err != nil || info.Size() != segmentHeader+whole-last.start) {
			t.Errorf("cut at %d: the torn frame was not removed: %v, %v", cut, info, err)
		}
		if s.Size() != whole || s.SHA256() != hexSum(log[:whole]) {
			t.Fatalf("cut at %d: %d bytes with %s, want %d", cut, s.Size(), s.SHA256(), whole)
		}
		if lost := cut < segmentHeader; s.Truncated() != lost {
			t.Errorf("cut at %d: truncated = %v", cut, s.Truncated())
		}
		want := lines(t, log[:whole])
		for i, line := range want {
			want[i] = strings.TrimSuffix(line, "…")
		}
		want = append(want, "the runner died")
		write(t, s, "the runner died\n")
		now := stored(t, s)
		if diff := cmp.Diff(want, lines(t, now)); diff != "" {
			t.Fatalf("cut at %d (-want +got):\n%s", cut, diff)
		}
		if s.SHA256() != hexSum(now) {
			t.Fatalf("cut at %d: the hash is wrong after more writes", cut)
		}
		server := newFakeServer(t)
		sh, stop := startShipper(t, again, server)
		flush(t, sh)
		must(t, stop())
		if diff := cmp.Diff(want, server.lines(2)); diff != "" {
			t.Fatalf("cut at %d, at the server (-want +got):\n%s", cut, diff)
		}
		must(t, again.Close())
	}
}

func TestReopenWithASegmentMissing(t *testing.T) {
	dir := t.TempDir()
	sp := openSpool(t, dir, Options{SegmentBytes: 100})
	s := openStep(t, sp, 0)
	for i := range 12 {
		write(t, s, fmt.Sprintf("line %d\n", i))
	}
	if len(s.segments) != 4 {
		t.Fatalf("%d segments", len(s.segments))
	}
	victim, log := s.segments[2], stored(t, s)
	must(t, sp.Close())
	must(t, os.Remove(filepath.Join(dir, victim.name)))
	again := openSpool(t, dir, Options{})
	s = openStep(t, again, 0)
	if s.Size() != victim.start || !s.Truncated() || s.SHA256() != hexSum(log[:victim.start]) {
		t.Errorf("%d bytes, truncated %v, want %d bytes", s.Size(), s.Truncated(), victim.start)
	}
}

func TestOpenHostileDirectory(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	must(t, os.WriteFile(outside, []byte("host secret\n"), 0o600))
	dir := t.TempDir()
	must(t, os.Symlink(outside, filepath.Join(dir, segmentName(1, 0))))
	must(t, os.Mkdir(filepath.Join(dir, segmentName(2, 0)), 0o700))
	for name, content := range map[string]string{
		segmentName(3, 0):                 "rubbish",
		segmentName(4, 5):                 strings.Repeat("rubbish", 1000),
		stepName(4, stateSuffix):          fmt.Sprintf("%-*s\n", stateSize-1, "workflow log spool, state 1 received=99 durable=-7 cut=3 ended=true truncated=false"),
		stepName(5, stateSuffix):          string(state{received: 1 << 40, durable: 1 << 40, cut: -1}.encode()),
		segmentName(6, 0) + unfinished:    "workflow log sp",
		"step-00006-0000000000000000.log": "not ours",
		"step-0007--000000000000001.log":  "not ours",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	sp := openSpool(t, dir, Options{})
	want := []StepSummary{{Step: 3, Truncated: true}, {Step: 4, Bytes: 5, Truncated: true}, {Step: 5}}
	for i := range want {
		want[i].SHA256 = hexSum(nil)
	}
	if diff := cmp.Diff(want, sp.Summaries()); diff != "" {
		t.Errorf("summaries (-want +got):\n%s", diff)
	}
	if s := openStep(t, sp, 1); s.Size() != 0 {
		t.Error("a file outside of the spool was read")
	} else if _, err := s.segment(); err == nil {
		if b, err := os.ReadFile(outside); err != nil || string(b) != "host secret\n" {
			t.Errorf("a file outside of the spool was written: %q, %v", b, err)
		}
	}
}

func FuzzOpenSegment(f *testing.F) {
	f.Add([]byte("2026-11-21T07:08:09.010011Z text\n2026-11-21T07:08:09.010011Z+frag\n2026"))
	f.Add([]byte("\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, frames []byte) {
		dir := t.TempDir()
		sp, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := openStep(t, sp, 0)
		seg, err := s.segment()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := seg.file.WriteAt(frames, segmentHeader); err != nil {
			t.Fatal(err)
		}
		must(t, sp.Close())
		s = openStep(t, openSpool(t, dir, Options{}), 0)
		write(t, s, "more\n")
		all := lines(t, stored(t, s))
		if all[len(all)-1] != "more" || s.SHA256() != hexSum(stored(t, s)) {
			t.Errorf("%q", all)
		}
	})
}
