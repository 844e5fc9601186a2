package faults

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
)

const (
	engineKilled   = "SIGKILL of the Docker Engine"
	engineStopped  = "orderly restart of the Docker Engine"
	engineRestored = "SIGKILL of the Docker Engine with live-restore"
)

// engineKillRows kill agent and runner around a container. The engine keeps running.
var engineKillRows = []faultRow{
	{
		phase: inPulling, fault: agentKilled, want: keptByNextClaim, pulled: true,
		scaled: scaledLease, server: scaledTimers(),
		do: func(a *arena) {
			a.pulling()
			a.killAgent()
			a.place.registry.Release()
			a.bringBack()
		},
	},
	{phase: inAsking, fault: agentKilled, want: kept, do: killed(before(beat("starting")), strikeAgent)},
	{phase: inGranted, fault: agentKilled, want: kept, do: killed(after(beat("starting")), strikeAgent)},
	{phase: inRunning, fault: agentKilled, want: kept, do: func(a *arena) {
		a.running()
		a.killAgent()
		a.resume() // the job ends while no agent runs
		a.status(patience, "succeeded")
		a.bringBack()
	}},
	{phase: inRunning, fault: runnerKilled, want: endedBy("signal"), do: func(a *arena) {
		a.running()
		a.shown(a.row.job.lines / 2)
		a.signal(a.runner(), syscall.SIGKILL)
	}},
	{phase: inReporting, fault: agentKilled, want: kept, do: killed(before(is(callResult)), strikeAgent)},
}

// engineRows stop engines; each row has its own.
var engineRows = []faultRow{
	{phase: "idle", fault: engineKilled, want: kept, do: func(a *arena) {
		a.endEngine(a.place.engine.Kill)
		a.agentSays("no Docker Engine responds")
		a.enqueueFree()
		a.restartEngine()
		a.agentSays("the executor can run jobs again")
	}},
	{phase: inPulling, fault: engineKilled, want: kept, pulled: true, do: func(a *arena) {
		a.pulling()
		a.endEngine(a.place.engine.Kill)
		a.place.registry.Release()
		a.agentSays("waiting for it")
		a.restartEngine()
	}},
	{phase: inGranted, fault: engineKilled, want: kept, do: func(a *arena) {
		held := after(beat("starting"))(a.proxy)
		a.enqueueFree()
		held.await(a.t)
		a.endEngine(a.place.engine.Kill)
		a.bringBack()
		a.agentSays("starting the job failed; retrying")
		a.restartEngine()
	}},
	{phase: inRunning, fault: engineKilled, want: endedBy("evicted"), do: func(a *arena) {
		a.running()
		a.shown(a.row.job.lines / 2)
		a.endEngine(a.place.engine.Kill)
		// An engine that finds a live container first stops it.
		a.interrupted(func() error { return a.place.engine.Restart(a.t.Context()) })
	}},
	{phase: inRunning, fault: engineStopped, want: endedBy("evicted"), do: func(a *arena) {
		a.running()
		a.shown(a.row.job.lines / 2)
		a.interrupted(func() error { return a.place.engine.Shutdown(patience) })
		a.restartEngine()
	}},
	{phase: inRunning, fault: engineRestored, want: kept, engine: []string{"--live-restore"}, do: func(a *arena) {
		a.running()
		a.endEngine(a.place.engine.Kill)
		a.restartEngine()
		a.resume()
	}},
}

// pulling queues the deployment and waits until the engine waits for the image.
func (a *arena) pulling() {
	a.t.Helper()
	asked := a.place.registry.Hold()
	a.enqueueFree()
	select {
	case <-asked:
	case <-time.After(patience):
		a.t.Fatal("the engine asked for no layer of the image")
	}
}

func (a *arena) endEngine(end func() error) {
	a.t.Helper()
	must.OK(a.t, end())
}

// interrupted calls do, which interrupts the job's command, and then resumes the command.
func (a *arena) interrupted(do func() error) {
	a.t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	a.eventually(patience, "the job is interrupted", func() (bool, error) {
		return strings.Contains(a.stack.Log(a.t.Context(), a.t, a.job), "is shutting down"), nil
	})
	a.resume()
	if err := <-done; err != nil {
		a.t.Fatal(err)
	}
}

func (a *arena) restartEngine() {
	a.t.Helper()
	must.OK(a.t, a.place.engine.Restart(a.t.Context()))
}

func (a *arena) agentSays(words string) {
	a.t.Helper()
	a.eventually(patience, "the agent logs "+words, func() (bool, error) {
		return strings.Contains(child.Tail(a.agent.LogFile, 1000), words), nil
	})
}

func TestEngineFaultKill(t *testing.T) { runRows(t, engineKillRows, sharedEngine(t)) }

func TestEngineFaultEngine(t *testing.T) {
	runRows(t, engineRows, place{name: "docker", own: engineOfItsOwn})
}
