package installer

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
)

// TestTruncated checks that a download cut at any byte runs nothing. The installer's first external
// program after its checks is mktemp; in this test, every program that the installer could start
// records its start.
func TestTruncated(t *testing.T) {
	t.Parallel()
	script := newMirror(t).script(t)
	var ends []int
	for i, c := range script {
		if c == '\n' {
			ends = append(ends, i)
		}
	}
	lines := bytes.SplitAfter(script, []byte("\n"))
	last := len(script) - len(bytes.Join(lines[max(0, len(lines)-8):], nil))
	inShells(t, func(t *testing.T, sh shell) {
		trace := filepath.Join(t.TempDir(), "trace")
		spies := t.TempDir()
		for _, name := range used {
			writeFile(t, filepath.Join(spies, name), []byte("#!/bin/sh\necho "+name+" >>'"+trace+"'\nexit 1\n"), 0o755)
		}
		// ran reports whether the shell did anything with the first n bytes.
		ran := func(n int) (string, bool) {
			cmd := exec.CommandContext(t.Context(), sh[0], append(sh[1:len(sh):len(sh)], "-s", "--", "--user")...)
			cmd.Stdin = bytes.NewReader(script[:n])
			cmd.Env = []string{"PATH=" + spies, "HOME=" + t.TempDir()}
			out, _ := cmd.CombinedOutput() // fails with a syntax error
			text, err := os.ReadFile(trace)
			if err == nil {
				out = append(out, text...)
				err = os.Remove(trace)
			} else if os.IsNotExist(err) {
				err = nil
			}
			must.OK(t, err)
			return string(out), len(text) > 0 || strings.Contains(string(out), "install.sh:")
		}
		for _, whole := range []int{len(script), len(script) - 1} { // the last byte is a newline
			if out, did := ran(whole); !did {
				t.Fatalf("%d of %d bytes did nothing, so this test proves nothing:\n%s", whole, len(script), out)
			}
		}
		var cuts []int
		for i, end := range ends {
			// Slow shells test only some of the lines.
			if quick := filepath.Base(sh[0]); full || quick == "dash" || quick == "busybox" || i%9 == 0 {
				cuts = append(cuts, end+i%2) // with the newline, or without
			}
		}
		for n := last; n < len(script)-1; n++ {
			cuts = append(cuts, n)
		}
		cuts = slices.DeleteFunc(cuts, func(n int) bool { return n >= len(script)-1 })
		for _, n := range cuts {
			if out, did := ran(n); did {
				t.Fatalf("the first %d bytes, up to %q, did something:\n%s", n, script[max(0, n-40):n], out)
			}
		}
		if len(cuts) < 100 {
			t.Fatalf("only %d cuts", len(cuts))
		}
	})
}
