package faults

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/protocol"
)

const (
	agentKilled  = "SIGKILL of the agent"
	runnerKilled = "SIGKILL of the runner"
	serverKilled = "SIGKILL of the server"
	allKilled    = "SIGKILL of server, agent and runner"
)

// The phases of a job. A job that is a process needs no preparation, and its runner starts only
// after leave is granted.
const (
	inClaimed   = "claimed"
	inAsking    = "asking leave"
	inGranted   = "leave granted, response under way"
	inRunning   = "running"
	inPulumi    = "running pulumi"
	inExiting   = "exiting: pulumi is done, its log and result are not sent"
	inShipping  = "shipping: the job is done, its log is under way"
	inReporting = "reporting: the result is under way"
	inReported  = "reported: the result has arrived, its response is under way"
)

// pin returns a rule that holds a job in a phase: before the server receives the call, or before
// its response is delivered.
type pin func(*faultProxy) *rule

func before(match func(request) bool) pin {
	return func(p *faultProxy) *rule { return p.on(match, -1, hold) }
}

func after(match func(request) bool) pin {
	return func(p *faultProxy) *rule { return p.afterAnswer(match, 1) }
}

// pins hold a job in each phase except running.
var pins = map[string]pin{
	inClaimed:   before(is(callDefinition)),
	inAsking:    before(beat("starting")),
	inGranted:   after(beat("starting")),
	inExiting:   before(pulumiEnded),
	inShipping:  before(runnerLog),
	inReporting: before(is(callResult)),
	inReported:  after(is(callResult)),
}

// killed returns the do function of a row: the job reaches the pin, strike runs, and everything is
// restarted.
func killed(at pin, strike func(a *arena)) func(a *arena) {
	return func(a *arena) {
		a.t.Helper()
		held := at(a.proxy)
		a.enqueueFree()
		held.await(a.t)
		strike(a)
		a.bringBack()
	}
}

func killedRunning(strike func(a *arena)) func(a *arena) {
	return func(a *arena) {
		a.t.Helper()
		a.running()
		a.shown(a.row.job.lines / 2)
		strike(a)
		a.bringBack()
		a.resume()
	}
}

// killedInPulumi is like killed, but strikes while pulumi runs. pulumi then ends only in rows whose
// deployment survives.
func killedInPulumi(strike func(a *arena)) func(a *arena) {
	return func(a *arena) {
		a.t.Helper()
		must.OK(a.t, os.WriteFile(a.busy(), nil, 0o600))
		a.enqueueFree()
		a.marked(patience, "pulumi")
		a.shown(a.row.job.lines)
		strike(a)
		a.bringBack()
		if a.row.want == kept {
			must.OK(a.t, os.Remove(a.busy()))
		}
	}
}

// workDone waits until the runner has recorded the result of its job.
func (a *arena) workDone() {
	a.t.Helper()
	a.eventually(patience, "the runner has recorded the result", func() (bool, error) {
		found, err := filepath.Glob(filepath.Join(a.Dir, "agent*", "state", "processes", "*", "job", protocol.FileResult))
		if err != nil || len(found) == 1 {
			return len(found) == 1, err
		}
		found, err = filepath.Glob(filepath.Join(a.Dir, sharedDir, "*", "*", "job", protocol.FileResult))
		return len(found) == 1, err
	})
}

func strikeAgent(a *arena)  { a.t.Helper(); a.killAgent() }
func strikeServer(a *arena) { a.t.Helper(); a.killServer() }
func strikeRunner(a *arena) { a.t.Helper(); a.killRunner(a.runner()) }

func strikeAll(a *arena) {
	a.t.Helper()
	runner := a.runner()
	a.killServer()
	a.killAgent()
	a.killRunner(runner)
	// A new agent can read the signal until the host has reaped the process; in this row, it is too
	// late for that.
	a.eventually(patience, "the runner is gone", func() (bool, error) {
		return syscall.Kill(runner, 0) != nil, nil
	})
}

func kill(phase, fault string, strike func(a *arena), want outcome) faultRow {
	row := faultRow{phase: phase, fault: fault, want: want}
	switch phase {
	case inRunning:
		row.do = killedRunning(strike)
	case inPulumi:
		row.do = killedInPulumi(strike)
	case inExiting, inShipping:
		row.do = killed(pins[phase], func(a *arena) {
			a.t.Helper()
			a.workDone()
			strike(a)
		})
	default:
		row.do = killed(pins[phase], strike)
	}
	return row
}

var killRows = []faultRow{
	{
		phase: inClaimed, fault: agentKilled, want: keptByNextClaim,
		scaled: scaledLease, server: scaledTimers(),
		do: killed(pins[inClaimed], strikeAgent),
	},
	kill(inClaimed, serverKilled, strikeServer, kept),
	kill(inAsking, agentKilled, strikeAgent, kept),
	{
		phase: inAsking, fault: "SIGKILL of the agent; restart after its lease", want: keptByNextClaim,
		scaled: scaledLease, server: scaledTimers(),
		do: killed(pins[inAsking], func(a *arena) {
			a.killAgent()
			a.status(patience, "not-started")
		}),
	},
	kill(inAsking, serverKilled, strikeServer, kept),
	kill(inGranted, agentKilled, strikeAgent, kept),
	{
		phase: inGranted, fault: "SIGKILL of the agent; restart after the job was given up", want: endedBy("lost"),
		scaled: scaledLost, server: scaledTimers(),
		do: killed(pins[inGranted], func(a *arena) {
			a.killAgent()
			a.status(lostLimit()+patience, "failed")
		}),
	},
	kill(inGranted, serverKilled, strikeServer, kept),
	kill(inRunning, agentKilled, strikeAgent, kept),
	kill(inRunning, runnerKilled, strikeRunner, endedBy("signal")),
	kill(inRunning, serverKilled, strikeServer, kept),
	kill(inRunning, "SIGKILL of server and agent", func(a *arena) {
		a.killServer()
		a.killAgent()
	}, kept),
	kill(inRunning, allKilled, strikeAll, endedBy("lost")),
	{
		phase: inRunning, fault: "SIGTERM of the agent; restart after the job's end", want: kept,
		do: func(a *arena) {
			a.running()
			must.OK(a.t, a.agent.Process.Stop(syscall.SIGTERM, patience))
			a.resume()
			a.status(patience, "succeeded")
			a.bringBack()
		},
	},
	kill(inPulumi, agentKilled, strikeAgent, kept),
	kill(inPulumi, runnerKilled, strikeRunner, endedInPulumi("signal")),
	kill(inPulumi, serverKilled, strikeServer, kept),
	kill(inPulumi, allKilled, strikeAll, endedInPulumi("lost")),
	kill(inExiting, agentKilled, strikeAgent, kept),
	kill(inExiting, runnerKilled, strikeRunner, kept),
	kill(inExiting, serverKilled, strikeServer, kept),
	kill(inExiting, allKilled, strikeAll, kept),
	kill(inShipping, agentKilled, strikeAgent, kept),
	kill(inShipping, runnerKilled, strikeRunner, kept),
	kill(inShipping, serverKilled, strikeServer, kept),
	kill(inReporting, agentKilled, strikeAgent, kept),
	kill(inReporting, runnerKilled, strikeRunner, kept),
	kill(inReporting, serverKilled, strikeServer, kept),
	kill(inReported, agentKilled, strikeAgent, kept),
	kill(inReported, runnerKilled, strikeRunner, kept),
	kill(inReported, serverKilled, strikeServer, kept),
	kill(inReported, allKilled, strikeAll, kept),
}

func TestFaultKill(t *testing.T) { runRows(t, killRows, processes) }
