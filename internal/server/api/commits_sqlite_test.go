package api_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// limitFiles bounds the size of the files that this process can write until the function that it returns
// is called. Writes behind the limit fail like those of a broken disk, not like those of a full one.
func limitFiles(t *testing.T, size uint64) (lift func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	set := func(l unix.Rlimit) {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &l); err != nil {
			t.Fatal(err)
		}
	}
	set(unix.Rlimit{Cur: size, Max: before.Max})
	return func() { set(before) }
}

// TestFailedCommitOnSQLite makes the disk fail when SQLite commits an import. The outcome is unknown,
// so the state that it might have stored must remain, and the next writes must succeed. It runs in a
// process of its own, because the limit is one of the process: it would also meet the log that the go
// command has each test process write, and its output if that is a file.
func TestFailedCommitOnSQLite(t *testing.T) {
	if os.Getenv("WORKFLOW_TEST_LIMITED") == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFailedCommitOnSQLite$", "-test.v")
		cmd.Env = append(os.Environ(), "WORKFLOW_TEST_LIMITED=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestFailedCommitOnSQLite") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	f := newFixture(t, options{})
	path := f.stack("dev")
	f.do("POST", path+"/import", state(1)).want(200, nil)

	lift := limitFiles(t, 8<<10) // the log of SQLite is longer, and the state is not
	a := f.do("POST", path+"/import", state(3))
	lift()
	a.want(500, nil).says(`"reason":"outcome_unknown"`)
	if got := a.Header.Get("Retry-After"); got != "" {
		t.Errorf("the answer has Retry-After %s", got)
	}
	if got := f.resourceCount(path); got != 1 && got != 3 {
		t.Errorf("the state has %d resources", got)
	}
	f.do("POST", path+"/import", state(2)).want(200, nil)
	if got := f.resourceCount(path); got != 2 {
		t.Errorf("after another import, the state has %d resources", got)
	}
}
