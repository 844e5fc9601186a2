package faults

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
)

// faultRow is one row of the fault matrix in docs/faults.md: a fault in a phase of a job, and
// how its deployment must end. All rows share the invariants of [arena.check].
type faultRow struct {
	phase  string // of the job when the fault happens
	fault  string // what happens
	want   outcome
	scaled string // what CI scales down from `make e2e`, or ""
	// evidence names the test that covers the row, for example with a fake clock, as PACKAGE.TestName. PACKAGE is
	// below internal unless it begins with cmd. A row that also has do runs at full scale.
	evidence string

	job    jobShape
	server []string      // further flags of the server
	agent  []string      // settings of the agent, KEY=VALUE
	engine []string      // further arguments of the row's own Docker Engine
	pulled bool          // the engine pulls the image from a registry
	alone  bool          // the fault affects the jobs of other rows at the place
	pod    string        // template of pods; NAMESPACE stands for the row's namespace
	skip   func() string // why this machine cannot run it, or ""
	// full is whether only a run at full scale, or one for the table, includes the row. CI runs another
	// row of the same kind.
	full bool
	// ready, if not nil, prepares the arena before its agent starts, and may return more settings
	// for it.
	ready func(a *arena) []string
	// do brings a job to the phase, causes the fault, and repairs what must be repaired. The job
	// then ends.
	do func(a *arena)
}

func (r faultRow) slug() string { return r.phase + "/" + r.fault }

type jobShape struct {
	lines int           // numbered lines; 0 stands for 2000
	over  time.Duration // approximate duration
	then  string        // a command after the pause half-way
}

// outcome is how a deployment ends. The zero value is no outcome.
type outcome struct {
	status, reason string
	or             string // another possible reason
	runs           int    // of pulumi
	requeued       bool   // another claim ran it
	lostFirst      bool   // the server reported the job lost first
	cut            bool   // the log ends where the job was killed
	gap            bool   // a marker replaces dropped lines
	update         string // how an update ends, in rows without a deployment
}

// kept is the outcome of a deployment that survives the fault.
var kept = outcome{status: "succeeded", runs: 1}

// keptByNextClaim is kept, after the job was requeued.
var keptByNextClaim = outcome{status: "succeeded", runs: 1, requeued: true}

// keptAfterLost is kept, after the server had given up the job.
var keptAfterLost = outcome{status: "succeeded", runs: 1, lostFirst: true}

var keptWithGap = outcome{status: "succeeded", runs: 1, gap: true}

// endedBy is the outcome of a deployment that fails with a reason before its pulumi runs.
func endedBy(reason string) outcome { return outcome{status: "failed", reason: reason, cut: true} }

// endedByForce is the outcome of a deployment whose runner has little time to report its end.
var endedByForce = outcome{status: "failed", reason: "lost", or: "evicted", cut: true}

func endedInPulumi(reason string) outcome {
	return outcome{status: "failed", reason: reason, cut: true, runs: 1}
}

// String returns the outcome in the words of the table.
func (o outcome) String() string {
	var text string
	switch {
	case o.update != "":
		text = o.update
	case o.status == "succeeded" && o.requeued:
		text = "kept, run by the next claim"
	case o.status == "succeeded" && o.lostFirst:
		text = "kept, reported as `lost` first"
	case o.status == "succeeded" && o.gap:
		text = "kept; a marker replaces dropped lines"
	case o.status == "succeeded":
		text = "kept"
	default:
		text = fmt.Sprintf("%s, `%s`", o.status, o.reason)
		if o.or != "" {
			text += " or `" + o.or + "`"
		}
		if o.runs > 0 {
			text += ", after pulumi had started"
		}
	}
	return text
}

// place is where the jobs of a row run and how they leave a mark independently of the product.
type place struct {
	name      string            // in the table
	image     string            // "" for the process executor
	variables map[string]string // of the deployment
	// Of the agent.
	settings map[string]string
	env      []string
	// mark is a shell command of a job that records a word; marks counts them.
	mark  func(a *arena, word string) string
	marks func(a *arena) map[string]int
	// gate is a shell command of a job that waits until open is called.
	gate   func(a *arena) string
	open   func(a *arena) error
	runner func(a *arena) []int
	// left lists the jobs' leftovers at the place, except for files and processes of this host.
	left func(a *arena) ([]string, error)
	// start starts server and git server for a row.
	start func(t *testing.T, serverArgs ...string) *harness.Site
	// own, if not nil, makes a place for one row.
	own func(t *testing.T, row faultRow) place

	engine   *lab.Engine   // of containers
	registry *lab.Registry // with the image, if the engine lacks it
	pods     *pods         // of a cluster
}

// runRows runs the rows of a matrix at a place, each on its own site and, because they mostly wait,
// in parallel.
func runRows(t *testing.T, rows []faultRow, at place) {
	t.Helper()
	for _, row := range rows {
		if row.evidence != "" && (row.do == nil || !harness.FullScale) {
			continue // another package's test; TestFaultTable checks it
		}
		if row.full && !harness.FullScale && os.Getenv(recordsVariable) == "" {
			continue
		}
		t.Run(strings.ReplaceAll(row.slug(), " ", "-"), func(t *testing.T) {
			if row.skip != nil {
				if reason := row.skip(); reason != "" {
					t.Skip(reason)
				}
			}
			if !row.alone {
				t.Parallel() // after all rows that are alone
			}
			a := newArena(t, row, at)
			row.do(a)
			a.check()
			if !t.Failed() {
				record(t, row, at)
			}
		})
	}
}

// scaledTimers are the server's timers of rows that wait for them. Runners and agents heartbeat
// every 10 s, so much shorter ones would be unrealistic.
func scaledTimers() []string {
	if harness.FullScale {
		return nil
	}
	return []string{"--job-lease", "14s", "--job-lost", "16s"}
}

// leaseTime is how long the server waits for a heartbeat, with [scaledTimers].
func leaseTime() time.Duration {
	if harness.FullScale {
		return time.Minute
	}
	return 14 * time.Second
}

const (
	scaledLease = "lease 14 s for 1 min"
	scaledLost  = "lost after 16 s for 10 min"
)

// lostLimit is how long a job is silent before the server gives it up, with [scaledTimers].
func lostLimit() time.Duration {
	if harness.FullScale {
		return 10 * time.Minute
	}
	return 16 * time.Second
}
