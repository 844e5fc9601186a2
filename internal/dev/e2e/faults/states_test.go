package faults

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/postgres"
	"workflowagent/internal/dev/must"
)

// statePlace is the heading of the rows about states.
const statePlace = "States of stacks"

// stateRow is a fault during an update of the stock CLI, which sends a journal. After each,
// [stateArena.recover] compares the state with the acknowledged entries and repairs the stack.
type stateRow struct {
	fault  string
	want   string        // how the update ends
	scaled string        // what CI scales down from `make e2e`, or ""
	skip   func() string // why this machine cannot run it, or ""
	retry  time.Duration // how long the proxy retries to connect to a stopped server
	ready  func(t *testing.T, dir string) (serverArgs []string)
	do     func(a *stateArena)
}

const (
	updateKept   = "kept"
	updateKilled = "the update is cut"
	updateFails  = "the update fails"
	updateEither = "kept, or the update fails"
)

const scaledUpdates = "fewer updates, with fewer resources"

const scaledBatches = "6 of 30 batches, and fewer resources"

// updates is the number of updates that a row with random moments breaks.
func updates() int {
	if harness.FullScale {
		return 10
	}
	return 2
}

// clientTries is how often the CLI sends a batch before it gives up.
const clientTries = 4

// pauseInUpdate waits for a random part of the time that an update takes at least.
func (a *stateArena) pauseInUpdate() {
	a.t.Helper()
	atLeast := time.Duration(amount()) * 500 * time.Millisecond / 4
	d := rand.N(atLeast * 3 / 4)
	a.t.Logf("the fault is %s later", d)
	time.Sleep(d)
}

// begin starts the nth update and waits for its first batch or, in every second update, until it
// creates slow resources.
func (a *stateArena) begin(n int) runningCLI {
	a.t.Helper()
	if n%2 == 0 {
		return a.update()
	}
	return a.creation()
}

var stateRows = []stateRow{
	{fault: "SIGKILL of the CLI at a random moment", want: updateKilled, scaled: scaledUpdates, do: func(a *stateArena) {
		pending := 0
		for n := range updates() {
			c := a.begin(n)
			a.pauseInUpdate()
			a.killCLI(c)
			pending += a.recover()
		}
		if pending == 0 {
			a.t.Error("no operation was ever pending, so this row shows too little")
		}
	}},
	{fault: "SIGKILL of the server at a random moment, and a restart", want: updateEither, scaled: scaledUpdates, do: func(a *stateArena) {
		for n := range updates() {
			c := a.begin(n)
			a.pauseInUpdate()
			a.restartServer()
			_, _ = a.finish(c) // depends on the duration of the restart
			a.recover()
		}
	}},
	{fault: "SIGKILL of the server at three random moments behind a proxy that waits for it", want: updateKept, scaled: scaledUpdates, retry: time.Minute, do: func(a *stateArena) {
		for n := range updates() {
			c := a.begin(n)
			for range 3 {
				a.pauseInUpdate()
				a.restartServer()
			}
			a.ended(c, true)
			a.recover()
		}
	}},
	{fault: "every batch of the journal arrives twice at once", want: updateKept, scaled: scaledBatches, do: meddlingBatches(twice)},
	{fault: "every second batch of the journal is delayed by a second", want: updateKept, scaled: scaledBatches, do: meddlingBatches(everySecond(delay(time.Second)))},
	{fault: "every second batch of the journal is lost", want: updateKept, scaled: scaledBatches, do: meddlingBatches(everySecond(dropRequest))},
	{fault: "every second response to a batch of the journal is lost", want: updateKept, scaled: scaledBatches, do: meddlingBatches(everySecond(dropAnswer))},
	{fault: "every second batch of the journal is lost in part", want: updateKept, scaled: scaledBatches, do: meddlingBatches(everySecond(tearRequest))},
	{fault: "a batch of the journal and its repetitions are lost", want: updateFails, do: func(a *stateArena) {
		c := a.creation()
		a.proxy.on(is(callJournal), clientTries, dropRequest).awaitHits(a.t, clientTries)
		a.ended(c, false)
		a.recover()
	}},
	{fault: "a batch of unchanged resources and its repetitions are lost", want: updateKept, do: func(a *stateArena) {
		a.base = a.export("")
		a.log.reset()
		lost := a.proxy.on(is(callJournal), clientTries, dropRequest)
		c := a.start("up", "--yes", "--skip-preview")
		lost.awaitHits(a.t, clientTries)
		a.ended(c, true)
		a.logged(lostEntries)
		a.repair = true
		a.recover()
	}},
	{fault: "SIGKILL of one of two servers, while calls alternate between them", want: updateKept, scaled: scaledUpdates, skip: needsPostgres, ready: onPostgres, do: func(a *stateArena) {
		other := a.startReplica()
		for n := range updates() {
			c := a.begin(n)
			a.pauseInUpdate()
			if n%2 == 0 {
				a.killServer(other)
				a.ended(c, true)
				other = a.startReplica()
			} else {
				a.killServer(a.Server)
				a.ended(c, true)
				a.startServer()
			}
			a.recover()
		}
	}},
}

func needsPostgres() string {
	reason, _ := postgres.Available()
	return reason
}

func onPostgres(t *testing.T, dir string) []string {
	t.Helper()
	dsn, stop, err := postgres.Start(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return []string{"--database", dsn}
}

// startReplica starts another server on the database, and lets calls alternate between the two.
func (a *stateArena) startReplica() *lab.Server {
	a.t.Helper()
	s := startReplica(a.t, a.Site, a.serverArgs)
	a.route.set(a.Server.URL, s.URL)
	return s
}

func (a *stateArena) killServer(s *lab.Server) {
	a.t.Helper()
	must.OK(a.t, s.Process.Stop(syscall.SIGKILL, patience))
}

func (a *stateArena) startServer() {
	a.t.Helper()
	must.OK(a.t, a.RestartServer(a.t.Context()))
}

func (a *stateArena) restartServer() {
	a.t.Helper()
	a.killServer(a.Server)
	a.startServer()
}

// everySecond meddles with every second call.
func everySecond(m meddle) meddle {
	return func(p *faultProxy, w http.ResponseWriter, r *http.Request, q request, rl *rule) {
		if rl.count()%2 == 0 {
			p.pass(w, r, q)
			return
		}
		m(p, w, r, q, rl)
	}
}

// meddlingBatches meddles with the first batches of an update that then succeeds.
func meddlingBatches(m meddle) func(a *stateArena) {
	return func(a *stateArena) {
		a.t.Helper()
		n := 6 // the CLI waits for a second before it repeats a batch
		if harness.FullScale {
			n = 30
		}
		met := a.proxy.on(is(callJournal), n, m)
		c := a.update()
		a.ended(c, true)
		met.awaitHits(a.t, n)
		if refused := a.log.refusals(); len(refused) > 0 {
			a.t.Errorf("the server refused batches with %v", refused)
		}
		a.recover()
	}
}

// tableRow returns the row for the table.
func (r stateRow) tableRow() faultRow {
	return faultRow{phase: inPulumi, fault: r.fault, want: outcome{update: r.want}, scaled: r.scaled}
}

func tableRows(rows []stateRow) []faultRow {
	var out []faultRow
	for _, r := range rows {
		out = append(out, r.tableRow())
	}
	return out
}

func TestFaultStates(t *testing.T) {
	for _, row := range slices.Concat(stateRows, storedStateRows) {
		t.Run(strings.ReplaceAll(row.fault, " ", "-"), func(t *testing.T) {
			if row.skip != nil {
				if reason := row.skip(); reason != "" {
					t.Skip(reason)
				}
			}
			t.Parallel()
			row.do(newStateArena(t, row))
			if !t.Failed() {
				record(t, row.tableRow(), place{name: statePlace})
			}
		})
	}
}
