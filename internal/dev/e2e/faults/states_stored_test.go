package faults

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// storedStateRows are the faults of the disk that has the states.
var storedStateRows = []stateRow{
	{fault: "the server's disk is full", want: updateFails, skip: needsMounts, ready: smallServerDisk, do: func(a *stateArena) {
		c, free := a.onFullDisk()
		a.until(c, "the CLI has given up a batch", func() bool { return len(a.log.refusals()) >= clientTries })
		free()
		a.ended(c, false)
		a.refusedForSpace()
		a.recover()
	}},
	{fault: "the server's disk is full until it has refused a batch", want: updateKept, skip: needsMounts, ready: smallServerDisk, do: func(a *stateArena) {
		c, free := a.onFullDisk()
		a.until(c, "the server refuses a batch", func() bool { return len(a.log.refusals()) > 0 })
		free()
		a.ended(c, true)
		a.refusedForSpace()
		a.recover()
	}},
	{fault: "the stack's newest state was damaged on disk", want: updateFails, do: func(a *stateArena) {
		older := a.info().Version
		a.blobs(1) // the first update's
		a.write()
		a.must("up", "--yes", "--skip-preview")
		newest := a.blobs(2)[1]
		damaged := harness.Read(a.t, newest)
		damaged[len(damaged)/2] ^= 1
		harness.Write(a.t, newest, damaged, 0o600)
		for _, args := range [][]string{{"up", "--yes", "--skip-preview"}, {"stack", "export"}} {
			if out, ok := a.finish(a.start(args...)); ok || !strings.Contains(out, "damaged") {
				a.t.Errorf("pulumi %s on a damaged state: succeeded %v\n%s", strings.Join(args, " "), ok, out)
			}
		}
		if !bytes.Equal(harness.Read(a.t, newest), damaged) || len(a.blobs(2)) != 2 {
			a.t.Error("the damaged state was overwritten")
		}
		a.must("cancel", "--yes") // the CLI leaves its update running
		file := filepath.Join(a.t.TempDir(), "older.json")
		a.must("stack", "export", "--version", fmt.Sprint(older), "--file", file)
		a.must("stack", "import", "--file", file)
		names := a.write()
		a.must("up", "--yes", "--skip-preview")
		a.complete(names)
	}},
}

// inEnded is the phase after an update.
const inEnded = "ended"

// storedStateEvidence are rows that other packages test.
var storedStateEvidence = []faultRow{
	{
		phase: inEnded, fault: "the server's disk is full while it folds the journal", want: outcome{update: updateKept},
		evidence: "server/stacks/states.TestFoldOnAFullDisk",
	},
	{
		phase: inEnded, fault: "the server's clock is set a year ahead: nothing is removed for a day", want: outcome{update: updateKept},
		evidence: "server/storage/retention.TestClockSetAhead",
	},
}

func smallServerDisk(t *testing.T, dir string) []string {
	t.Helper()
	data := filepath.Join(dir, "server")
	must.OK(t, os.Mkdir(data, 0o700))
	mountDisk(t, data, "96m")
	return nil
}

// onFullDisk starts an update whose next batch reaches the server after its disk is full. A full disk
// alone does not suffice, because a batch can fit into the allocated space of the write-ahead log.
func (a *stateArena) onFullDisk() (c runningCLI, free func()) {
	a.t.Helper()
	c = a.creation()
	next := a.proxy.on(is(callJournal), -1, hold)
	next.await(a.t)
	free = fillDisk(a.t, a.Server.DataDir)
	const most = 5000
	for i := range most {
		stack := map[string]string{"stackName": fmt.Sprintf("filler%d", i)}
		err := a.Server.Call(a.t.Context(), http.MethodPost, "/api/stacks/"+a.Server.Organization+"/filler", stack, nil)
		switch {
		case err == nil && i == most-1:
			a.t.Fatalf("the server stored %d stacks on a full disk", most)
		case err == nil:
			continue
		case !strings.Contains(err.Error(), "disk is full"):
			a.t.Fatal(err)
		}
		a.t.Logf("the server stored %d stacks on a full disk", i)
		break
	}
	next.lift()
	return c, free
}

// within waits for something that the server does.
func (a *stateArena) within(what string, ask func() bool) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	if err := harness.Until(ctx, func() (bool, error) { return ask(), nil }); err != nil {
		a.t.Fatalf("waiting until %s: %v", what, err)
	}
}

// lostEntries is the server's warning about an update whose client lost journal entries.
const lostEntries = "did not receive all entries"

// logged waits until the server has logged a text.
func (a *stateArena) logged(text string) {
	a.t.Helper()
	a.within("the server logs "+text, func() bool {
		return bytes.Contains(harness.Read(a.t, a.Server.LogFile), []byte(text))
	})
}

// refusedForSpace checks that every refused batch was answered with 503, so that the CLI repeats it.
func (a *stateArena) refusedForSpace() {
	a.t.Helper()
	for _, code := range a.log.refusals() {
		if code != http.StatusServiceUnavailable {
			a.t.Errorf("the server refused a batch with %d", code)
		}
	}
}

// blobs waits until no journal is left to fold, and so n states are stored as blobs, and returns their
// files, oldest first.
func (a *stateArena) blobs(n int) []string {
	a.t.Helper()
	var files []string
	a.within(fmt.Sprintf("%d states are stored as blobs", n), func() bool {
		files = nil
		times := map[string]time.Time{}
		err := filepath.WalkDir(filepath.Join(a.Server.DataDir, "blobs", "stacks"), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") { // not yet complete
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			files, times[path] = append(files, path), info.ModTime()
			return nil
		})
		if err != nil {
			a.t.Log(err) // a file was removed
			return false
		}
		slices.SortFunc(files, func(x, y string) int { return times[x].Compare(times[y]) })
		return len(files) == n
	})
	return files
}

// TestExpiredVersion exports versions with the stock CLI after the retention has removed the oldest.
func TestExpiredVersion(t *testing.T) {
	a := newStateArena(t, stateRow{ready: func(*testing.T, string) []string {
		return []string{"--keep-states", "1", "--keep-states-for", "1ms"}
	}})
	oldest := fmt.Sprint(a.info().Version)
	a.write()
	a.must("up", "--yes", "--skip-preview")
	a.restartServer() // a server that starts removes old states at once
	gone := ""
	a.within("version "+oldest+" has expired", func() bool {
		out, ok := a.finish(a.start("stack", "export", "--version", oldest))
		gone = out
		return !ok
	})
	for _, text := range []string{"410", "keep_states"} {
		if !strings.Contains(gone, text) {
			t.Errorf("the CLI says %q, want %q in it", gone, text)
		}
	}
	a.must("stack", "export", "--version", fmt.Sprint(a.info().Version))
}
