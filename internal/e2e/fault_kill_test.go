package e2e

import (
	"syscall"
	"testing"
)

// Who is killed in a row.
const (
	agentKilled  = "SIGKILL of the agent, which starts again"
	runnerKilled = "SIGKILL of the runner"
	serverKilled = "SIGKILL of the server, which starts again"
)

// pin returns what holds a job in a phase: before the server hears of the call, or
// after it has answered and nobody has heard that.
type pin func(*faultProxy) *rule

func before(match func(request) bool) pin {
	return func(p *faultProxy) *rule { return p.on(match, -1, hold) }
}

func after(match func(request) bool) pin {
	return func(p *faultProxy) *rule { return p.afterAnswer(match, 1) }
}

// killed makes what a row does: the job comes to the phase, strike hits, and
// everything is started again.
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

func strikeAgent(a *arena)  { a.t.Helper(); a.killAgent() }
func strikeServer(a *arena) { a.t.Helper(); a.killServer() }
func strikeRunner(a *arena) { a.t.Helper(); a.signal(a.runner(), syscall.SIGKILL) }

// killRows kill each program in each phase of a job. There is no runner before the
// job has leave to start, and jobs that are processes have nothing to prepare.
var killRows = []faultRow{
	{
		phase: "claimed", fault: agentKilled, want: keptByNextClaim,
		scaled: scaledLease, server: scaledTimers(),
		do: killed(before(is(callDefinition)), strikeAgent),
	},
	{phase: "claimed", fault: serverKilled, want: kept, do: killed(before(is(callDefinition)), strikeServer)},
	{phase: "asking leave", fault: agentKilled, want: kept, do: killed(before(beat("starting")), strikeAgent)},
	{phase: "asking leave", fault: serverKilled, want: kept, do: killed(before(beat("starting")), strikeServer)},
	{phase: "leave granted, answer under way", fault: agentKilled, want: kept, do: killed(after(beat("starting")), strikeAgent)},
	{phase: "leave granted, answer under way", fault: serverKilled, want: kept, do: killed(after(beat("starting")), strikeServer)},
	{phase: "running", fault: agentKilled, want: kept, do: func(a *arena) {
		a.running()
		a.killAgent()
		a.bringBack()
		a.goOn()
	}},
}

func TestFaultKill(t *testing.T) { runRows(t, killRows, processes) }
