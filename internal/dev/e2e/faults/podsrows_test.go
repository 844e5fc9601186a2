package faults

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab/cluster"
)

const scaledOutage = "10 s for 3 min"

// awayTime is how long the API server is away.
func awayTime() time.Duration {
	if harness.FullScale {
		return 3 * time.Minute
	}
	return 10 * time.Second
}

// podRows disturb single pods, or the agent's connection to the cluster.
var podRows = []faultRow{
	{phase: inPending, fault: "a user deletes the pod", want: endedBy("evicted"), pod: held, do: func(a *arena) {
		a.enqueueFree()
		a.deletePod("--wait=false")
	}},
	{phase: inAsking, fault: "a user deletes the pod", want: endedBy("evicted"), full: true, do: func(a *arena) {
		hold := before(beat("starting"))(a.proxy)
		a.enqueueFree()
		hold.await(a.t)
		a.deletePod()
		a.proxy.liftAll()
	}},
	{phase: inAsking, fault: "a user creates a second pod of the job", want: kept, do: func(a *arena) {
		hold := before(beat("starting"))(a.proxy)
		a.enqueueFree()
		hold.await(a.t)
		p := a.place.pods
		p.copyPod(a.t, a.onePod(), "twin")
		a.proxy.liftAll()
		a.eventually(patience, "the second pod has ended", func() (bool, error) {
			var twin pod
			err := p.Cluster.Call(a.t.Context(), http.MethodGet, p.path("pods/twin"), nil, &twin)
			return twin.Status.Phase == "Failed" || twin.Status.Phase == "Succeeded", err
		})
		p.kubectl(a.t, "delete", "pod", "twin")
	}},
	{phase: inRunning, fault: "a user deletes the pod", want: endedBy("evicted"), do: func(a *arena) {
		a.running()
		a.shown(a.row.job.lines / 2)
		a.deletePod("--wait=false")
		a.shuttingDown()
	}},
	{phase: inRunning, fault: "a user deletes the pod by force", want: endedByForce, do: func(a *arena) {
		a.running()
		a.shown(a.row.job.lines / 2)
		a.deletePod("--force", "--grace-period=0", "--wait=false")
	}},
	{phase: inRunning, fault: "the eviction API evicts the pod", want: endedBy("evicted"), full: true, do: func(a *arena) {
		a.running()
		a.shown(a.row.job.lines / 2)
		a.evict()
		a.shuttingDown()
	}},
	{phase: inPulumi, fault: "the eviction API evicts the pod; pulumi is interrupted", want: endedInPulumi("evicted"), do: func(a *arena) {
		a.place.pods.ledger.busy.Store(true)
		a.enqueueFree()
		a.marked(patience, "pulumi")
		a.shown(a.row.job.lines)
		a.evict()
		a.marked(patience, "interrupted")
	}},
	{phase: inRunning, fault: "a pod of higher priority takes its place", want: endedBy("evicted"), pod: narrow, do: func(a *arena) {
		a.running()
		a.shown(a.row.job.lines / 2)
		a.preempt()
		a.shuttingDown()
		a.place.pods.kubectl(a.t, "delete", "pod", "urgent", "--now")
	}},
	{
		phase: inRunning, fault: "the kernel kills a step that needs too much memory", want: endedBy("out-of-memory"), pod: small,
		job: jobShape{then: hungry},
		do:  (*arena).starve,
	},
	{
		phase: inRunning, fault: "the kernel kills the runner because the pod needs too much memory", want: endedBy("out-of-memory"), pod: small,
		job: jobShape{then: hungry},
		do: func(a *arena) {
			a.running()
			a.shown(a.row.job.lines / 2)
			harness.Write(a.t, fmt.Sprintf("/proc/%d/oom_score_adj", a.runner()), []byte("1000"), 0o600)
			a.resume()
		},
	},
	{phase: inRunning, fault: "every watch of the agent breaks after a second", want: kept, full: true, job: jobShape{over: 15 * time.Second}, ready: func(a *arena) []string {
		a.place.pods.api.watch = time.Second
		return nil
	}, do: func(a *arena) {
		a.enqueueFree()
	}},
	{phase: inPod, fault: "the response to the pod's creation is lost", want: kept, full: true, do: func(a *arena) {
		a.place.pods.api.hold("POST pods", true)
		a.enqueueFree()
		a.onePod()
		a.place.pods.api.lift()
	}},
	{phase: inPod, fault: "the agent cannot reach the API server for a while", want: kept, do: struckAt(inPod, func(a *arena) {
		a.place.pods.api.cut()
		a.agentSays("starting the job failed; retrying")
		a.place.pods.api.restore(a.t)
	})},
	{phase: "all", fault: "the cluster's clock is an hour ahead of the agent's", want: kept, ready: func(a *arena) []string {
		a.place.pods.api.skew = time.Hour
		return nil
	}, do: func(a *arena) { a.enqueueFree() }},
	{phase: "all", fault: "the cluster's clock is an hour behind the agent's", want: kept, full: true, ready: func(a *arena) []string {
		a.place.pods.api.skew = -time.Hour
		return nil
	}, do: func(a *arena) { a.enqueueFree() }},
	{
		phase: inPending, fault: "no node fits the pod", want: endedBy("launch"), full: true, pod: held, agent: []string{"pod_start_timeout=15s"},
		do: func(a *arena) {
			a.enqueueFree()
			a.logSays("didn't match Pod's node affinity/selector")
		},
	},
	{
		phase: inPulling, fault: "an image of the pod does not exist", want: endedBy("image"), full: true, agent: []string{"pod_start_timeout=20s"},
		pod: `spec: {initContainers: [{name: other, image: "127.0.0.1:1/missing:1", imagePullPolicy: Always}]}`,
		do: func(a *arena) {
			a.enqueueFree()
			a.logSays("127.0.0.1:1/missing:1")
		},
	},
	{phase: inPod, fault: "the namespace's quota is used up since the check, for a while", want: kept, full: true, do: struckAt(inPod, func(a *arena) {
		quotaOf("0")(a)
		a.quotaApplies()
		a.place.pods.api.lift()
		a.place.pods.api.hold("POST pods", false).await(a.t) // the agent repeats the refused call
		a.place.pods.kubectl(a.t, "delete", "quota", "few")
	})},
	{
		phase: inTrial, fault: "a LimitRange of the namespace allows less memory than the pod requests", want: endedBy("launch"),
		ready: limitRange, do: func(a *arena) {
			a.enqueueFree()
			a.logSays("maximum memory usage per Container is 8Mi")
		},
	},
	{phase: inTrial, fault: "the namespace's quota allows no pod for a while", want: kept, ready: quotaOf("0"), do: func(a *arena) {
		a.enqueueFree()
		a.logSays("Waiting for the quota of the namespace")
		a.place.pods.kubectl(a.t, "delete", "quota", "few")
	}},
	{
		phase: inTrial, fault: "the namespace's quota allows no pod", want: endedBy("launch"), full: true, ready: quotaOf("0"), agent: []string{"pod_start_timeout=10s"},
		do: func(a *arena) {
			a.enqueueFree()
			a.logSays("exceeded quota")
		},
	},
}

// clusterRows disturb the whole cluster.
var clusterRows = []faultRow{
	{phase: inRunning, fault: "SIGKILL of the kubelet and a restart", want: kept, alone: true, do: func(a *arena) {
		a.running()
		a.disturb((*cluster.Cluster).KubeletStop)
		a.resume()
		a.disturb((*cluster.Cluster).KubeletStart)
	}},
	{
		phase: inRunning, fault: "SIGKILL of the API server, which is away for 3 minutes", want: kept, alone: true, scaled: scaledOutage,
		job: jobShape{over: awayTime() / 2},
		do: func(a *arena) {
			a.running()
			a.disturb((*cluster.Cluster).APIServerStop)
			a.resume() // the job ends meanwhile
			a.pass(awayTime())
			a.startAPIServer()
		},
	},
	{
		phase: inRunning, fault: "as before, with a SIGKILL of the agent meanwhile", want: kept, full: true, alone: true,
		do: func(a *arena) {
			a.running()
			a.disturb((*cluster.Cluster).APIServerStop)
			a.killAgent()
			a.bringBack()
			a.resume()
			a.status(patience, "succeeded")
			a.startAPIServer()
		},
	},
	{
		phase: inRunning, fault: "the node is lost with its processes; the server gives the job up after a minute", full: true, alone: true,
		want:   outcome{status: "failed", reason: "lost", cut: true, lostFirst: true}, // the agent confirms it
		server: []string{"--job-lease", "30s", "--job-lost", "1m"},
		do: func(a *arena) {
			a.running()
			a.shown(a.row.job.lines / 2)
			a.loseNode()
			a.status(patience, "failed")
			a.deletePod("--force", "--grace-period=0", "--wait=false") // as for a node that does not return
			a.disturb((*cluster.Cluster).KubeletStart)
		},
	},
	{phase: inPulumi, fault: "the node is drained; pulumi is interrupted", want: endedInPulumi("evicted"), alone: true, do: func(a *arena) {
		a.place.pods.ledger.busy.Store(true)
		a.enqueueFree()
		a.marked(patience, "pulumi")
		a.shown(a.row.job.lines)
		a.disturb(func(c *cluster.Cluster, ctx context.Context) error { return c.Drain(ctx, time.Minute) })
		defer a.disturb((*cluster.Cluster).Uncordon)
		a.marked(patience, "interrupted")
	}},
}
