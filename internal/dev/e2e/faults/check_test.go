package faults

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// check waits for the end of the row's deployment and checks the invariants of every row. The
// deployment ends with the expected status and reason. By an independent count, it ran at most
// once. Its log has every line once and in order, and the server found no fault with it. No
// leftovers exist.
func (a *arena) check() {
	a.t.Helper()
	want := a.row.want
	finals := []string{"succeeded", "failed", "skipped"}
	if want.lostFirst {
		finals = []string{want.status} // the lost verdict may still be shown briefly
	}
	a.stack.Wait(a.t.Context(), a.t, a.job, patience+a.row.job.over, finals...)
	a.checkLeft() // leftovers could still change the other results
	d := a.details()
	log := a.stack.Log(a.t.Context(), a.t, a.job)
	if d.Status != want.status || d.Reason != want.reason && (want.or == "" || d.Reason != want.or) {
		a.t.Errorf("the deployment is %s (%s: %s), want %s (%s)\nits log:\n%s", d.Status, d.Reason, d.Message, want.status, want.reason, tail(log, 30))
	}
	a.checkRuns(want)
	a.checkLines(want, log)
	a.checkNotes(want, d)
}

// details is the API's description of a deployment beyond [harness.Deployment].
type details struct {
	harness.Deployment
	Results []struct {
		Status string `json:"status"`
		Reason string `json:"reason"`
	} `json:"results"`
	Notes []string `json:"notes"`
}

func (a *arena) details() details {
	a.t.Helper()
	var d details
	must.OK(a.t, a.Server.Call(a.t.Context(), http.MethodGet, a.stack.Path(a.job.ID), nil, &d))
	return d
}

// checkRuns counts executions by their side effects.
func (a *arena) checkRuns(want outcome) {
	a.t.Helper()
	marks := a.place.marks(a)
	if got := marks["pulumi"]; got != want.runs {
		a.t.Errorf("pulumi ran %d times, want %d", got, want.runs)
	}
	switch got := marks["job"]; {
	case got > 1:
		a.t.Errorf("the job ran %d times", got)
	case got == 0 && (want.runs > 0 || a.written > 0):
		a.t.Error("the job left no mark, so this test counts nothing")
	}
}

// checkLines checks the numbered lines: each once, in order, and all of them unless the job was
// killed.
func (a *arena) checkLines(want outcome, log string) {
	a.t.Helper()
	next, gaps := 1, 0
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "*** ") && strings.Contains(line, " dropped because ") {
			gaps++
			continue
		}
		text, ok := strings.CutPrefix(line, "line-")
		if !ok {
			continue
		}
		number, err := strconv.Atoi(text)
		if err != nil && (want.cut || want.gap) {
			continue // cut at the gap
		}
		if number != next && (gaps == 0 || number < next) {
			a.t.Errorf("after line %d the log has %q", next-1, line)
			return
		}
		next = number + 1
	}
	all := want.status == "succeeded"
	switch {
	case want.gap != (gaps > 0):
		a.t.Errorf("the log has %d markers of dropped output, want some: %v", gaps, want.gap)
	case all && next != a.row.job.lines+1:
		a.t.Errorf("the log has %d of %d lines", next-1, a.row.job.lines)
	case !all && next-1 < a.written:
		a.t.Errorf("the log has %d lines, and %d had been written when the job was cut", next-1, a.written)
	}
}

// brokenLog matches the server's note about a log that differs from its announced length or
// checksum.
var brokenLog = regexp.MustCompile(`The log .*(is incomplete|does not match|was cut)`)

func (a *arena) checkNotes(want outcome, d details) {
	a.t.Helper()
	notes := strings.Join(d.Notes, "\n")
	if broken := brokenLog.FindString(notes); (broken != "") != want.gap {
		a.t.Errorf("the server's verdict on the log is %q; dropped lines are expected: %v", broken, want.gap)
	}
	if requeued := strings.Contains(notes, "the deployment was requeued"); requeued != want.requeued {
		a.t.Errorf("requeued: %v, want %v; notes: %q", requeued, want.requeued, notes)
	}
	if lost := strings.Contains(notes, "marked as lost"); lost != (want.lostFirst || d.Reason == "lost" && len(d.Results) == 0) {
		a.t.Errorf("marked as lost: %v, want the opposite; notes: %q", lost, notes)
	}
	if want.lostFirst && (len(d.Results) != 1 || d.Results[0].Status != want.status) {
		a.t.Errorf("besides the lost verdict the history has %+v", d.Results)
	}
}

// checkLeft checks for leftovers of the job. Agents clean up after they have reported, so it may
// take a while.
func (a *arena) checkLeft() {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	var left []string
	err := harness.Until(ctx, func() (bool, error) {
		var err error
		if left, err = a.left(); err != nil {
			return false, err
		}
		return len(left) == 0, nil
	})
	if err != nil {
		a.t.Errorf("left behind: %q (%v)", left, err)
	}
}

// keptFiles are the files of an agent's state directory without jobs.
var keptFiles = regexp.MustCompile(`^(instances|instances/\d+|instances/\d+/(lock|id|jobs|control\.sock)|processes)$`)

// left lists files, processes and other leftovers of the place.
func (a *arena) left() ([]string, error) {
	left, err := a.place.left(a)
	if err != nil {
		return nil, err
	}
	tokens := a.proxy.jobTokens()
	states, err := filepath.Glob(filepath.Join(a.Dir, "agent*"))
	if err != nil {
		return nil, err
	}
	for _, dir := range states {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			inState, err := filepath.Rel(filepath.Join(dir, "state"), path)
			if err == nil && inState != "." && !strings.HasPrefix(inState, "..") && !keptFiles.MatchString(inState) {
				left = append(left, path)
			}
			if entry.Type().IsRegular() && holds(path, tokens) {
				left = append(left, "a job token in "+path)
			}
			return nil
		})
		if err != nil && !os.IsNotExist(err) {
			return nil, err
		}
	}
	apart, err := filepath.Glob(filepath.Join(a.Dir, sharedDir, "*", "*"))
	if err != nil {
		return nil, err
	}
	left = append(left, apart...)
	if holds(a.Server.LogFile, tokens) {
		left = append(left, "a job token in "+a.Server.LogFile)
	}
	return append(left, jobProcesses(a.Dir)...), nil
}

func holds(path string, texts []string) bool {
	data, err := os.ReadFile(path)
	if err != nil {
		return false // being removed
	}
	for _, text := range texts {
		if bytes.Contains(data, []byte(text)) {
			return true
		}
	}
	return false
}

// jobProcesses lists the processes of jobs below a directory: runners and their descendants.
func jobProcesses(dir string) []string {
	var found []string
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // empty if the directory does not exist
	for _, file := range files {
		args, err := os.ReadFile(file)
		if err != nil {
			continue // ended
		}
		env, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "environ")) // protected ones are unreadable
		if bytes.Contains(args, []byte(dir+"/agent")) || bytes.Contains(env, []byte("WORKFLOW_JOB_DIRECTORY="+dir)) {
			found = append(found, fmt.Sprintf("process %s: %s", filepath.Base(filepath.Dir(file)), bytes.ReplaceAll(args, []byte{0}, []byte{' '})))
		}
	}
	return found
}

// countLines counts the equal lines of a file, which may be missing.
func countLines(t *testing.T, path string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		counts[strings.TrimSpace(line)]++
	}
	return counts
}
