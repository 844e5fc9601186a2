package delivery

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

const childDir = "LOGSPOOL_TEST_DIR"

func TestKilledProcess(t *testing.T) {
	if dir := os.Getenv(childDir); dir != "" {
		writeUntilKilled(t, dir)
		return
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledProcess$")
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	must(t, cmd.Start())
	written := 0
	for sc := bufio.NewScanner(stdout); written < 3000 && sc.Scan(); {
		if _, err := fmt.Sscanf(sc.Text(), "wrote %d", &written); err != nil {
			t.Errorf("the child says %q", sc.Text())
		}
		if written == 1000 {
			if _, err := Open(dir, Options{}); !errors.Is(err, ErrInUse) {
				t.Errorf("opening the spool of a process that lives: %v", err)
			}
		}
	}
	must(t, cmd.Process.Kill())
	if err := cmd.Wait(); err == nil || written < 3000 {
		t.Fatalf("the child ended by itself after %d lines: %v", written, err)
	}
	sp := openSpool(t, dir, Options{SegmentBytes: 10_000})
	s := openStep(t, sp, 0)
	write(t, s, "the end\n")
	server := newFakeServer(t)
	sh, _ := startShipper(t, sp, server)
	flush(t, sh)
	got := server.lines(0)
	if len(got)-1 < written {
		t.Errorf("%d lines are left of %d", len(got)-1, written)
	}
	for i, line := range got[:len(got)-1] {
		if want := fmt.Sprintf("line %d", i); line != want {
			t.Fatalf("line %d is %q", i, line)
		}
	}
	if got[len(got)-1] != "the end" {
		t.Errorf("the last line is %q", got[len(got)-1])
	}
	server.checkSummaries(sp.Summaries())
}

func writeUntilKilled(t *testing.T, dir string) {
	sp := openSpool(t, dir, Options{SegmentBytes: 10_000})
	s := openStep(t, sp, 0)
	for i := 0; ; i++ {
		write(t, s, fmt.Sprintf("line %d\n", i))
		if _, err := fmt.Printf("wrote %d\n", i+1); err != nil {
			t.Fatal(err)
		}
	}
}
