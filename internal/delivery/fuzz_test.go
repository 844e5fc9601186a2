package delivery

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/protocol"
)

// The fuzz tests cover files that a job can write: it controls the directory of its spool, which
// the agent opens after the runner's death.

func FuzzReadState(f *testing.F) {
	f.Add(state{received: 7, durable: 5, cut: -1, ended: true}.encode())
	f.Add([]byte("workflow log spool, state 1 received=1 durable=2 cut=-1 ended=true truncated=false"))
	f.Add(bytes.Repeat([]byte{0xff}, stateSize))
	f.Fuzz(func(t *testing.T, content []byte) {
		name := filepath.Join(t.TempDir(), stepName(0, stateSuffix))
		must(t, os.WriteFile(name, content, 0o600))
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close() // opened for reading only
		st, ok, err := readState(file)
		if err != nil || !ok {
			return
		}
		if st.durable < 0 || st.received < st.durable || st.received > maxOffset {
			t.Errorf("%q is %+v", content, st)
		}
		if encoded := st.encode(); len(encoded) != stateSize {
			t.Errorf("%+v takes %d bytes", st, len(encoded))
		}
	})
}

func FuzzFileNames(f *testing.F) {
	for _, name := range []string{segmentName(3, 0), stepName(1, stateSuffix), stepName(2, marksSuffix), "step-1-1.log", "step-0001.state/..", "../step-0001.lines", "step--001.state", "step-+001.lines"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if IsFileName(name) && (!filepath.IsLocal(name) || filepath.Base(name) != name || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "") {
			t.Errorf("%q passes for a file of a spool", name)
		}
	})
}

func FuzzSegmentFile(f *testing.F) {
	dir := f.TempDir()
	sp, err := Open(dir, Options{})
	if err != nil {
		f.Fatal(err)
	}
	s, err := sp.Step(0)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := s.Write([]byte("one\ntwo\n")); err != nil {
		f.Fatal(err)
	}
	must(f, sp.Close())
	good, err := os.ReadFile(filepath.Join(dir, segmentName(0, 0)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, int64(0))
	f.Add(good[:len(good)-3], int64(0))
	f.Add(good, int64(1<<40))
	f.Add(bytes.ReplaceAll(good, []byte("start=0"), []byte("start=9")), int64(9))
	f.Fuzz(func(t *testing.T, content []byte, start int64) {
		if start < 0 || start > maxOffset {
			return
		}
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, segmentName(0, start)), content, 0o600))
		sp, err := Open(dir, Options{})
		if err != nil {
			return
		}
		defer func() { _ = sp.Close() }() // opened for reading only
		s, err := sp.Step(0)
		if err != nil {
			return
		}
		if got := s.Size(); got < start || got > start+int64(len(content)) {
			t.Errorf("a segment of %d bytes at %d ends at %d", len(content), start, got)
		}
	})
}

func FuzzTakeLines(f *testing.F) {
	f.Add([]byte("2026-11-21T07:08:09.010011Z text\n2026-11-21T07:08:09.010011Z+frag\n2026"), uint8(3))
	f.Add([]byte("2026-11-21T07:08:09.010011Z+a\n2026-11-21T07:08:09.010011Z b\n"), uint8(40))
	f.Fuzz(func(t *testing.T, framed []byte, cut uint8) {
		var whole, pieces protocol.LogLines
		all, err := lineMark{}.appendLines(framed, &whole)
		if err != nil {
			return
		}
		if all.bytes+all.ahead > int64(len(framed)) || all.lines != int64(len(whole.Lines)) {
			t.Fatalf("%d bytes become %+v with %d lines", len(framed), all, len(whole.Lines))
		}
		// Take the same bytes in two calls, as in a retry.
		at := min(int(cut), len(framed))
		mark, err := lineMark{}.appendLines(framed[:at], &pieces)
		if err != nil {
			t.Fatal(err)
		}
		mark, err = mark.appendLines(framed[mark.bytes+mark.ahead:], &pieces)
		if err != nil || mark != all || len(pieces.Lines) != len(whole.Lines) {
			t.Fatalf("in two pieces %+v, %v, want %+v", mark, err, all)
		}
	})
}

// TestFrameWithoutEnd checks that the agent can open a spool that contains a frame without an end.
func TestFrameWithoutEnd(t *testing.T) {
	dir := t.TempDir()
	sp, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	write(t, openStep(t, sp, 0), "one\n")
	must(t, sp.Close())
	file, err := os.OpenFile(filepath.Join(dir, segmentName(0, 0)), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString("2026-11-21T07:08:09.010011Z " + strings.Repeat("x", 3<<20)); err != nil {
		t.Fatal(err)
	}
	must(t, file.Close())
	if got := lines(t, stored(t, openStep(t, openSpool(t, dir, Options{}), 0))); len(got) != 1 || got[0] != "one" {
		t.Errorf("%q", got)
	}
}
