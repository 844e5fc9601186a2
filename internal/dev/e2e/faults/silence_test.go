package faults

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// longer is the duration of a fault that a job must not notice, in CI and at full scale.
func longer(scaled, full time.Duration) time.Duration {
	if harness.FullScale {
		return full
	}
	return scaled
}

// freeze stops a process until the returned function is called.
func (a *arena) freeze(pid int) (thaw func()) {
	a.t.Helper()
	a.signal(pid, syscall.SIGSTOP)
	thawed := false
	thaw = func() {
		if !thawed {
			thawed = true
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may be dead by then
		}
	}
	a.t.Cleanup(thaw)
	return thaw
}

// frozenInRunning freezes a process under a running job, calls how, and resumes the process and
// then the job.
func frozenInRunning(who func(a *arena) int, how func(a *arena)) func(a *arena) {
	return func(a *arena) {
		a.t.Helper()
		a.running()
		thaw := a.freeze(who(a))
		how(a)
		thaw()
		a.resume()
	}
}

func theAgent(a *arena) int  { return a.agent.Process.Pid() }
func theServer(a *arena) int { return a.Server.Process.Pid() }
func theRunner(a *arena) int { a.t.Helper(); return a.runner() }

func (a *arena) untilLost() {
	a.t.Helper()
	d := a.status(lostLimit()+patience, "failed")
	if d.Reason != "lost" {
		a.t.Fatalf("the silent job ended as %+v, want it lost", d)
	}
	if a.row.want == keptAfterLost {
		a.apply()
	}
}

// apply makes the update that the deployment's own pulumi, which the tests replace, would have made. A
// lost deployment succeeds only with one.
func (a *arena) apply() {
	a.t.Helper()
	path := "/api/stacks/" + a.stack.Name + "/update"
	call := func(authorization, path string, in, out any) {
		a.t.Helper()
		must.OK(a.t, a.Server.CallAs(a.t.Context(), authorization, http.MethodPost, path, in, out))
	}
	user := "token " + a.Server.Token
	var created struct{ UpdateID string }
	call(user, path, map[string]any{
		"name": "box", "runtime": "yaml",
		"metadata": map[string]any{"environment": map[string]string{"ci.build.id": a.job.ID}},
	}, &created)
	path += "/" + created.UpdateID
	var started struct{ Token string }
	call(user, path, map[string]any{}, &started)
	call("update-token "+started.Token, path+"/complete", map[string]string{"status": "succeeded"}, nil)
}

func linesOfOutage() jobShape {
	if harness.FullScale {
		return jobShape{lines: 100_000, over: 4 * time.Minute}
	}
	return jobShape{lines: 20_000, over: 16 * time.Second}
}

var silenceRows = []faultRow{
	{
		phase: inRunning, fault: "the server is unreachable for 3 minutes, during 100 000 lines", want: kept,
		scaled: "12 s, 20 000 lines", job: linesOfOutage(),
		do: func(a *arena) {
			a.resume()
			a.running()
			a.proxy.cut()
			a.pass(longer(12*time.Second, 3*time.Minute))
			a.proxy.restore(a.t)
		},
	},
	{
		phase: inRunning, fault: "the server is unreachable for longer than the lost limit, during 100 000 lines", want: keptAfterLost,
		scaled: scaledLost + ", 20 000 lines", job: linesOfOutage(), server: scaledTimers(),
		do: func(a *arena) {
			a.resume()
			a.running()
			a.proxy.cut()
			a.untilLost()
			a.proxy.restore(a.t)
		},
	},
	{
		phase: inRunning, fault: "as before, with a SIGKILL of the agent meanwhile", want: keptAfterLost,
		scaled: scaledLost, server: scaledTimers(),
		do: func(a *arena) {
			a.running()
			a.proxy.cut()
			a.killAgent()
			a.untilLost()
			a.resume()
			a.proxy.restore(a.t)
			a.bringBack()
		},
	},
	{
		phase: inRunning, fault: "the server accepts connections but sends no response for 2 minutes", want: kept,
		scaled: "35 s", do: func(a *arena) {
			a.running()
			silent := a.proxy.on(anyCall, -1, hold)
			a.resume()
			a.pass(longer(35*time.Second, 2*time.Minute))
			silent.lift()
		},
	},
	{
		phase: inRunning, fault: "SIGSTOP of the server for 2 minutes", want: kept,
		scaled: "20 s", do: frozenInRunning(theServer, func(a *arena) { a.pass(longer(20*time.Second, 2*time.Minute)) }),
	},
	{
		phase: inClaimed, fault: "SIGSTOP of the agent for longer than its lease", want: keptByNextClaim,
		scaled: scaledLease, server: scaledTimers(),
		do: func(a *arena) {
			held := pins[inClaimed](a.proxy)
			a.enqueueFree()
			held.await(a.t)
			thaw := a.freeze(theAgent(a))
			a.status(patience, "not-started")
			held.lift()
			thaw()
		},
	},
	{
		// Either of the two limits of 10 minutes may pass first.
		phase: inGranted, fault: "SIGSTOP of the agent until the job was given up", want: outcome{status: "failed", reason: "lost", or: "launch", cut: true},
		scaled: scaledLost, server: scaledTimers(),
		do: func(a *arena) {
			held := pins[inGranted](a.proxy)
			a.enqueueFree()
			held.await(a.t)
			thaw := a.freeze(theAgent(a))
			a.untilLost()
			held.lift()
			thaw()
		},
	},
	{
		phase: inRunning, fault: "SIGSTOP of the agent for longer than the lost limit", want: kept,
		scaled: scaledLost, server: scaledTimers(),
		do: frozenInRunning(theAgent, func(a *arena) { a.pass(lostLimit() + 10*time.Second) }),
	},
	{
		phase: inRunning, fault: "SIGSTOP of the runner for 2 minutes, longer than its lease", want: kept,
		scaled: "20 s", do: frozenInRunning(theRunner, func(a *arena) { a.pass(longer(20*time.Second, 2*time.Minute)) }),
	},
	{
		phase: inRunning, fault: "SIGSTOP of the runner for longer than the lost limit", want: keptAfterLost,
		scaled: scaledLost, server: scaledTimers(),
		do: frozenInRunning(theRunner, func(a *arena) { a.untilLost() }),
	},
}

func TestFaultSilence(t *testing.T) { runRows(t, silenceRows, processes) }
