package faults

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/lab/cluster"
	"workflowagent/internal/dev/must"
)

const (
	inTrial     = "checking the pod"
	inSecret    = "creating the Secret"
	inSecretEnd = "Secret created"
	inPod       = "creating the pod"
	inPodEnd    = "pod created"
	inOwning    = "making the pod own the Secret"
	inOwned     = "Secret owned"
	inPending   = "waiting for a node"
	inPulling   = "pulling"
)

// callAt is the agent's call of the cluster's API in each phase, and whether the row strikes after
// the cluster has received it.
var callAt = map[string]struct {
	call  string
	after bool
}{
	inTrial:     {"check pods", false},
	inSecret:    {"POST secrets", false},
	inSecretEnd: {"POST secrets", true},
	inPod:       {"POST pods", false},
	inPodEnd:    {"POST pods", true},
	inOwning:    {"PATCH secrets", false},
	inOwned:     {"PATCH secrets", true},
}

// struckAt returns the do function of a row that strikes while the agent makes the phase's call.
func struckAt(phase string, strike func(a *arena)) func(a *arena) {
	return func(a *arena) {
		a.t.Helper()
		at := callAt[phase]
		held := a.place.pods.api.hold(at.call, at.after)
		a.enqueueFree()
		held.await(a.t)
		strike(a)
		a.place.pods.api.lift()
		a.bringBack()
	}
}

// untilRequeued kills the agent and waits until the server has assigned the job to nobody.
func untilRequeued(a *arena) {
	a.t.Helper()
	a.killAgent()
	a.status(patience, "not-started")
}

// lateRestart names the rows whose agent comes back when the server has already requeued the job.
const lateRestart = "SIGKILL of the agent; restart after its lease"

func killedAt(phase string, full bool) faultRow {
	return faultRow{phase: phase, fault: agentKilled, want: kept, full: full, do: struckAt(phase, strikeAgent)}
}

func lateAt(phase string, full bool) faultRow {
	return faultRow{
		phase: phase, fault: lateRestart, want: keptByNextClaim, full: full,
		scaled: scaledLease, server: scaledTimers(), do: struckAt(phase, untilRequeued),
	}
}

// held is the template of pods that wait for a node until [arena.giveNode].
const held = `spec: {nodeSelector: {e2e/NAMESPACE: "yes"}}`

func (a *arena) giveNode() {
	a.t.Helper()
	p := a.place.pods
	label := map[string]any{"metadata": map[string]any{"labels": map[string]string{"e2e/" + p.Namespace: "yes"}}}
	must.OK(a.t, p.Cluster.Call(a.t.Context(), http.MethodPatch, "/api/v1/nodes/"+cluster.Node, label, nil))
}

// stillAccepted checks that the job waits, and that its pod is the only one.
func (a *arena) stillAccepted() {
	a.t.Helper()
	if now, err := a.stack.Get(a.t.Context(), a.job); err != nil || now.Status != "accepted" {
		a.t.Errorf("the waiting job is %+v (%v)", now, err)
	}
	a.onePod()
}

// podKillRows kill agent and runner around a pod. The agent writes its journal before it creates
// the Secret.
var podKillRows = []faultRow{
	lateAt(inTrial, true),
	killedAt(inSecret, true),
	lateAt(inSecret, true),
	killedAt(inSecretEnd, false),
	lateAt(inSecretEnd, false),
	killedAt(inPod, true),
	killedAt(inPodEnd, false),
	killedAt(inOwning, true),
	killedAt(inOwned, true),
	{phase: inPodEnd, fault: "SIGKILL of the agent; restart after the job's end", want: kept, do: struckAt(inPodEnd, func(a *arena) {
		a.killAgent()
		a.status(patience, "succeeded")
	})},
	{phase: inPending, fault: agentKilled, want: kept, full: true, pod: held, do: func(a *arena) {
		a.enqueueFree()
		a.onePod()
		a.killAgent()
		a.bringBack()
		a.giveNode()
	}},
	{
		phase: inPending, fault: lateRestart, want: keptByNextClaim, pod: held,
		scaled: scaledLease, server: scaledTimers(),
		do: func(a *arena) {
			a.enqueueFree()
			a.onePod()
			untilRequeued(a)
			a.giveNode() // the old pod starts, and gets no leave
			a.bringBack()
		},
	},
	{phase: inPulling, fault: "SIGKILL of the agent; the pull takes longer than its lease", want: kept, pulled: true, scaled: scaledLease, server: scaledTimers(), do: func(a *arena) {
		a.pulling()
		a.killAgent()
		a.bringBack()
		a.pass(leaseTime() + 5*time.Second)
		a.stillAccepted()
		a.place.registry.Release()
	}},
	{phase: inAsking, fault: agentKilled, want: kept, full: true, do: killed(before(beat("starting")), strikeAgent)},
	{phase: inAsking, fault: runnerKilled, want: endedBy("signal"), do: killed(before(beat("starting")), func(a *arena) {
		a.signal(a.runner(), syscall.SIGKILL)
	})},
	{phase: inGranted, fault: agentKilled, want: kept, full: true, do: killed(after(beat("starting")), strikeAgent)},
	{phase: inGranted, fault: "the response that grants leave is lost, twice", want: kept, do: func(a *arena) {
		rule := a.proxy.on(beat("starting"), 2, dropAnswer)
		a.enqueueFree()
		rule.awaitHits(a.t, 2)
	}},
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
	{phase: inReporting, fault: runnerKilled, want: kept, full: true, do: killed(before(is(callResult)), func(a *arena) {
		a.signal(a.runner(), syscall.SIGKILL)
	})},
}

func TestClusterFaults(t *testing.T) {
	at := sharedCluster(t)
	runRows(t, podKillRows, at)
	runRows(t, podRows, at)
}

// TestClusterNodeFaults affects all pods of the cluster.
func TestClusterNodeFaults(t *testing.T) { runRows(t, clusterRows, sharedCluster(t)) }
