package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
)

// faultRow is one line of the fault matrix in docs/reliability.md: what is done to
// whom at what moment of a job's life, and how its deployment must end. Whatever
// the row, the same invariants are checked afterwards, see [arena.check].
type faultRow struct {
	phase  string // of the job when it happens
	fault  string // what happens
	want   outcome
	scaled string // what is smaller in CI than in `make e2e`, "" if nothing is
	// evidence names the test that shows it where the clock has to be false, as
	// PACKAGE.TestName below internal. A row that has do, too, is run at full scale.
	evidence string

	job    jobShape
	server []string      // further flags of the server
	agent  []string      // settings of the agent, KEY=VALUE
	engine []string      // further arguments of a Docker Engine of its own
	pulled bool          // the image is in a registry and has to be pulled
	skip   func() string // why this machine cannot run it, "" if it can
	// ready, if not nil, prepares the arena before its agent starts, for which it
	// may return further settings.
	ready func(a *arena) []string
	// do brings a job to the phase, does what the row is about, and makes good
	// again what shall be made good. The job ends after it.
	do func(a *arena)
}

// slug is the row's name as a test.
func (r faultRow) slug() string { return r.phase + "/" + r.fault }

// jobShape says what a row's job writes.
type jobShape struct {
	lines int           // numbered lines; 0 stands for 2000
	over  time.Duration // time that it takes for them, about
}

// outcome is how a deployment ends. The zero value is no outcome.
type outcome struct {
	status, reason string
	or             string // another reason that is as true
	runs           int    // of pulumi
	requeued       bool   // another claim ran it
	lostFirst      bool   // the verdict lost came before
	cut            bool   // the log ends where the job was killed
	gap            bool   // a marker stands for lines that were dropped
}

// kept is the outcome of a deployment that the fault did not hurt.
var kept = outcome{status: "succeeded", runs: 1}

// keptByNextClaim is kept, after the job had gone back to the queue.
var keptByNextClaim = outcome{status: "succeeded", runs: 1, requeued: true}

// keptAfterLost is kept, after the server had given the job up.
var keptAfterLost = outcome{status: "succeeded", runs: 1, lostFirst: true}

// keptWithGap is kept, but for lines that were dropped after all patience.
var keptWithGap = outcome{status: "succeeded", runs: 1, gap: true}

// endedBy is the outcome of a deployment that could not be kept, before its pulumi
// ran: failed, and the reason says why.
func endedBy(reason string) outcome { return outcome{status: "failed", reason: reason, cut: true} }

// endedInPulumi is endedBy, after pulumi had begun.
func endedInPulumi(reason string) outcome {
	return outcome{status: "failed", reason: reason, cut: true, runs: 1}
}

// String is the outcome in the words of the table.
func (o outcome) String() string {
	var text string
	switch {
	case o.status == "succeeded" && o.requeued:
		text = "kept, run by the next claim"
	case o.status == "succeeded" && o.lostFirst:
		text = "kept: `lost` at first, corrected by the evidence"
	case o.status == "succeeded" && o.gap:
		text = "kept; a marker stands for the lines that were dropped"
	case o.status == "succeeded":
		text = "kept"
	default:
		text = fmt.Sprintf("truthfully ended: %s, `%s`", o.status, o.reason)
		if o.or != "" {
			text += " or `" + o.or + "`"
		}
		if o.runs > 0 {
			text += ", after pulumi had begun"
		}
	}
	return text
}

// place is where the jobs of a row run and how they leave a mark outside of our
// code.
type place struct {
	name      string            // in the table
	image     string            // "" for the process executor
	variables map[string]string // of the deployment
	// settings and environment of the agent.
	settings map[string]string
	env      []string
	// mark is a shell command of a job that notes a word where marks counts it.
	mark  func(a *arena, word string) string
	marks func(a *arena) map[string]int
	// gate is a shell command of a job that waits until open was called.
	gate func(a *arena) string
	open func(a *arena) error
	// runner returns the process ids of the job's runners on this host.
	runner func(a *arena) []int
	// left lists what the jobs have left behind at the place, beside files and
	// processes of this host.
	left func(a *arena) ([]string, error)
	// start makes server and git server for a row.
	start func(t *testing.T, serverArgs ...string) *harness.Site
	// own, if not nil, makes a place for one row.
	own func(t *testing.T, row faultRow) place

	engine   *lab.Engine   // of containers
	registry *lab.Registry // that has the image, if it is not on the engine
}

// runRows runs the rows of a matrix at a place, each on a site of its own and as
// many at a time as -parallel says: they mostly wait.
func runRows(t *testing.T, rows []faultRow, at place) {
	t.Helper()
	for _, row := range rows {
		if row.evidence != "" && (row.do == nil || !harness.FullScale) {
			continue // another package's test; TestFaultTable looks for it
		}
		t.Run(strings.ReplaceAll(row.slug(), " ", "-"), func(t *testing.T) {
			if row.skip != nil {
				if reason := row.skip(); reason != "" {
					t.Skip(reason)
				}
			}
			t.Parallel()
			a := newArena(t, row, at)
			row.do(a)
			a.check()
			if !t.Failed() {
				record(t, row, at)
			}
		})
	}
}

// scaledTimers are the server's timers of rows that wait for them. Runners and
// agents heartbeat every 10 s, so nothing much shorter would be true.
func scaledTimers() []string {
	if harness.FullScale {
		return nil
	}
	return []string{"--job-lease", "14s", "--job-lost", "16s"}
}

// What rows with these timers say about their scale.
const (
	scaledLease = "lease 14 s for 1 min"
	scaledLost  = "lost after 16 s for 10 min"
)

// lostLimit is how long a job is silent before the server gives it up, with
// [scaledTimers].
func lostLimit() time.Duration {
	if harness.FullScale {
		return 10 * time.Minute
	}
	return 16 * time.Second
}
