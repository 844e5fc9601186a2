package faults

import (
	"context"
	"net/http"
	"strings"
	"syscall"

	"workflowagent/internal/dev/lab/cluster"
	"workflowagent/internal/dev/must"
)

func (a *arena) disturb(do func(*cluster.Cluster, context.Context) error) {
	a.t.Helper()
	must.OK(a.t, do(a.place.pods.Cluster, a.t.Context()))
}

// startAPIServer starts the API server again. After the row it restarts the kubelet, which otherwise
// reports the node as ready only a minute later.
func (a *arena) startAPIServer() {
	a.t.Helper()
	a.disturb((*cluster.Cluster).APIServerStart)
	a.t.Cleanup(func() {
		if err := a.place.pods.Cluster.KubeletRestart(context.Background()); err != nil {
			a.t.Error(err)
		}
	})
}

// loseNode kills the kubelet and all processes of the job's pod, and waits until the cluster deletes
// the pod of the unreachable node.
func (a *arena) loseNode() {
	a.t.Helper()
	lost := a.onePod()
	a.disturb((*cluster.Cluster).KubeletStop)
	for _, pid := range podProcesses(lost) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended with another one
	}
	a.eventually(patience, "the cluster deletes the pod", func() (bool, error) {
		return a.onePod().Metadata.DeletionTimestamp != "", nil
	})
}

// narrow is the template of pods that occupy a port of their node, which only one pod at a time can.
const narrow = `spec: {containers: [{name: pulumi-workflow, ports: [{containerPort: 9999, hostPort: 29999}]}]}`

// preempt creates a pod that needs the port of [narrow], with a higher priority.
func (a *arena) preempt() {
	a.t.Helper()
	p := a.place.pods
	class := map[string]any{
		"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000,
		"metadata": map[string]any{"name": p.Namespace}, "preemptionPolicy": "PreemptLowerPriority",
	}
	const classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
	must.OK(a.t, p.Cluster.Call(a.t.Context(), http.MethodPost, classes, class, nil))
	a.t.Cleanup(func() {
		if err := p.Cluster.Call(context.Background(), http.MethodDelete, classes+"/"+p.Namespace, nil, nil); err != nil {
			a.t.Error(err)
		}
	})
	urgent := map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "urgent"},
		"spec": map[string]any{"priorityClassName": p.Namespace, "restartPolicy": "Never", "containers": []map[string]any{{
			"name": "main", "image": p.Image, "command": []string{"/bin/true"}, "ports": []map[string]any{{"containerPort": 9999, "hostPort": 29999}},
		}}},
	}
	a.eventually(patience, "the cluster knows the priority", func() (bool, error) {
		err := p.Cluster.Call(a.t.Context(), http.MethodPost, p.path("pods"), urgent, nil)
		if err != nil && strings.Contains(err.Error(), "no PriorityClass") {
			return false, nil
		}
		return err == nil, err
	})
}

// limitRange allows less memory than each of the pod's containers has as its limit.
func limitRange(a *arena) []string {
	a.t.Helper()
	limits := map[string]any{
		"apiVersion": "v1", "kind": "LimitRange", "metadata": map[string]any{"name": "few"},
		"spec": map[string]any{"limits": []map[string]any{{"type": "Container", "max": map[string]string{"memory": "8Mi"}}}},
	}
	p := a.place.pods
	must.OK(a.t, p.Cluster.Call(a.t.Context(), http.MethodPost, p.path("limitranges"), limits, nil))
	return nil
}

// small is the template of pods with little memory.
const small = `spec: {containers: [{name: pulumi-workflow, resources: {limits: {memory: 96Mi}}}]}`

// hungry is a command that takes more memory than [small] allows.
const hungry = `awk 'BEGIN { s = "x"; while (1) s = s s }' || exit $?`

// starve lets the job go on to [hungry] after half of its lines.
func (a *arena) starve() {
	a.t.Helper()
	a.running()
	a.shown(a.row.job.lines / 2)
	a.resume()
}

func (a *arena) deletePod(args ...string) {
	a.t.Helper()
	a.place.pods.kubectl(a.t, append([]string{"delete", "pod", a.onePod().Metadata.Name}, args...)...)
}

func (a *arena) evict() {
	a.t.Helper()
	p := a.place.pods
	must.OK(a.t, p.Cluster.Evict(a.t.Context(), p.Namespace, a.onePod().Metadata.Name))
}

// shuttingDown waits until the runner interrupts the job, and then lets the job's command end.
func (a *arena) shuttingDown() {
	a.t.Helper()
	a.interrupted(func() error { return nil })
}

func (a *arena) logSays(text string) {
	a.t.Helper()
	a.eventually(patience, "the log has "+text, func() (bool, error) {
		return strings.Contains(a.stack.Log(a.t.Context(), a.t, a.job), text), nil
	})
}

// quotaApplies waits until the cluster refuses further pods of the namespace.
func (a *arena) quotaApplies() {
	a.t.Helper()
	p := a.place.pods
	pod := map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "refused"},
		"spec": map[string]any{"containers": []map[string]any{{"name": "main", "image": p.Image}}},
	}
	a.eventually(patience, "the quota applies", func() (bool, error) {
		err := p.Cluster.Call(a.t.Context(), http.MethodPost, p.path("pods?dryRun=All"), pod, nil)
		return err != nil && strings.Contains(err.Error(), "exceeded quota"), nil
	})
}

// quotaOf limits the number of the namespace's pods.
func quotaOf(pods string) func(a *arena) []string {
	return func(a *arena) []string {
		a.t.Helper()
		quota := map[string]any{
			"apiVersion": "v1", "kind": "ResourceQuota",
			"metadata": map[string]any{"name": "few"}, "spec": map[string]any{"hard": map[string]string{"pods": pods}},
		}
		p := a.place.pods
		must.OK(a.t, p.Cluster.Call(a.t.Context(), http.MethodPost, p.path("resourcequotas"), quota, nil))
		return nil
	}
}
