package doctor

import (
	"errors"
	"testing"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/kubernetes"
	"workflowagent/internal/checkup"
	"workflowagent/internal/reach"
	"workflowagent/internal/workflow"
)

func TestClusterAnswers(t *testing.T) {
	facts := func(change func(*kubernetes.Facts)) func(*fixture, *lateExecutor, *cluster) {
		return func(_ *fixture, _ *lateExecutor, c *cluster) { change(&c.facts) }
	}
	refused := func(cause string) func(*fixture, *lateExecutor, *cluster) {
		return func(_ *fixture, _ *lateExecutor, c *cluster) {
			c.verdict = kubernetes.Admission{Cause: cause, Words: "no: " + cause}
		}
	}
	awaiting := func(err error) func(*fixture, *lateExecutor, *cluster) {
		return func(_ *fixture, p *lateExecutor, _ *cluster) { p.awaitErr = err }
	}
	noImage := &executor.Error{Reason: workflow.ReasonImage, Message: "The image cannot be pulled"}
	for _, tt := range []struct {
		name  string
		brk   func(*fixture, *lateExecutor, *cluster)
		check string
		want  checkup.Status
		words []string
	}{
		{"a cluster", facts(func(*kubernetes.Facts) {}), "cluster", checkup.StatusOK, []string{"Kubernetes 1.36 at https://cluster"}},
		{"an old cluster", facts(func(f *kubernetes.Facts) { f.Version = "1.28" }), "cluster", checkup.StatusFail, []string{"1.28", "1.29", "upgrade"}},
		{"no cluster", func(_ *fixture, _ *lateExecutor, c *cluster) {
			c.err = errors.New("the cluster at x does not respond")
		}, "cluster", checkup.StatusFail, []string{"the cluster at x does not respond", "kubeconfig"}},
		{"no configuration", func(w *fixture, _ *lateExecutor, _ *cluster) {
			w.options.Executor, w.options.Cluster, w.options.Pods, w.options.ExecutorErr = nil, nil, nil, errors.New("num_cpus: is wrong")
		}, "cluster", checkup.StatusFail, []string{"num_cpus: is wrong"}},

		{"the rights", facts(func(*kubernetes.Facts) {}), "rights", checkup.StatusOK, []string{"exactly"}},
		{"missing rights", facts(func(f *kubernetes.Facts) {
			f.Missing, f.Wide = []string{"watch pods"}, []string{"get secrets"}
		}), "rights", checkup.StatusFail, []string{"watch pods", "RoleBinding in namespace jobs"}},
		{"wide rights", facts(func(f *kubernetes.Facts) { f.Wide = []string{"get secrets"} }), "rights", checkup.StatusWarn, []string{"get secrets", "only to the installation's Role"}},

		{"a namespace", facts(func(*kubernetes.Facts) {}), "namespace", checkup.StatusOK, []string{"Standard baseline"}},
		{"one namespace", func(w *fixture, _ *lateExecutor, _ *cluster) { w.options.AgentNamespace = "jobs" }, "namespace", checkup.StatusWarn, []string{"the agent's own namespace jobs", "kubernetes_namespace"}},
		{"a namespace that the agent may not read", facts(func(f *kubernetes.Facts) { f.Readable = false }), "namespace", checkup.StatusOK, []string{"may not read"}},
		{"a namespace without a standard", facts(func(f *kubernetes.Facts) { f.PodSecurity = "" }), "namespace", checkup.StatusWarn, []string{"privileged pods", "enforce=baseline"}},

		{"no template", func(w *fixture, _ *lateExecutor, _ *cluster) { w.options.Pods = pods{} }, "pod-template", checkup.StatusOK, []string{"no pod template"}},
		{"a template", func(w *fixture, _ *lateExecutor, _ *cluster) { w.options.Pods = pods{origin: "/t"} }, "pod-template", checkup.StatusOK, []string{"/t is valid"}},
		{"a notable template", func(w *fixture, _ *lateExecutor, _ *cluster) {
			w.options.Pods = pods{origin: "/t", notes: []string{"sets hostPID"}}
		}, "pod-template", checkup.StatusWarn, []string{"/t weakens", "sets hostPID"}},

		{"admission", facts(func(*kubernetes.Facts) {}), "admission", checkup.StatusOK, []string{"accepts"}},
		{"admission that changes pods", func(_ *fixture, _ *lateExecutor, c *cluster) { c.verdict.Changed = []string{"adds a proxy"} }, "admission", checkup.StatusOK, []string{"adds a proxy"}},
		{"admission with warnings", func(_ *fixture, _ *lateExecutor, c *cluster) { c.verdict.Warnings = []string{"would violate"} }, "admission", checkup.StatusWarn, []string{"would violate"}},
		{"a quota", refused("quota"), "admission", checkup.StatusFail, []string{"no: quota", "num_cpus", "quota of namespace jobs"}},
		{"a range of limits", refused("limits"), "admission", checkup.StatusFail, []string{"no: limits", "LimitRange"}},
		{"a standard", refused("podsecurity"), "admission", checkup.StatusFail, []string{"no: podsecurity", "Without root"}},
		{"an account", refused("account"), "admission", checkup.StatusFail, []string{"service_account_name"}},
		{"no namespace", refused("namespace"), "admission", checkup.StatusFail, []string{"create namespace jobs"}},
		{"a policy", refused("pod"), "admission", checkup.StatusFail, []string{"policy", "config pod"}},
		{"a pod that cannot be built", func(_ *fixture, _ *lateExecutor, c *cluster) { c.verdictErr = errors.New("no architecture") }, "admission", checkup.StatusFail, []string{"no architecture"}},
		{"an image that is not allowed", func(w *fixture, _ *lateExecutor, _ *cluster) { w.set("allowed_images=example.com/**") }, "admission", checkup.StatusFail, []string{"allowed_images does not allow pulumi/pulumi:latest", "--job-image"}},

		{"a pod", facts(func(*kubernetes.Facts) {}), "job", checkup.StatusOK, []string{"a pod with pulumi/pulumi:latest ran the runner"}},
		{"a refused pod", refused("quota"), "job", checkup.StatusSkip, []string{"admission"}},
		{"a pod that does not start", awaiting(errors.New("0/3 nodes are available")), "job", checkup.StatusFail, []string{"0/3 nodes are available"}},
		{"the usual image cannot be pulled", awaiting(noImage), "job", checkup.StatusWarn, []string{"cannot be pulled", "--job-image"}},
		{"without the usual image, nothing is known about the network", awaiting(noImage), "job-server", checkup.StatusSkip, []string{"no trial job ran"}},
		{"an image cannot be pulled", func(w *fixture, p *lateExecutor, _ *cluster) { w.options.JobImage, p.awaitErr = "a/b:1", noImage }, "job", checkup.StatusFail, []string{"cannot be pulled"}},
		{"offline", func(w *fixture, _ *lateExecutor, _ *cluster) { w.options.Offline = true }, "cluster", checkup.StatusSkip, []string{"--offline"}},
		{"a pod without egress", func(w *fixture, _ *lateExecutor, _ *cluster) {
			w.executor.report.Traces[0] = &reach.Trace{URL: "u1", Failed: reach.StageConnect, Problem: "no route", Advice: "open the port"}
		}, "job-server", checkup.StatusFail, []string{"no route", "NetworkPolicies of namespace jobs"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newFixture(t)
			w.set("deploy_target=kubernetes", "image=agent")
			w.executor.report.Traces = w.executor.report.Traces[:1] // without the token's check, a job gets one URL
			p := &lateExecutor{fakeExecutor: w.executor}
			c := &cluster{facts: kubernetes.Facts{Host: "https://cluster", Version: "1.36", PodSecurity: "baseline", Readable: true}}
			w.options.Executor, w.options.Cluster, w.options.Pods = p, c, pods{}
			tt.brk(w, p, c)
			want(t, w.examine(t, tt.check), tt.check, tt.want, tt.words...)
			if tt.check == "job" && w.executor.prepared != w.executor.removed {
				t.Errorf("prepared: %t, removed: %t", w.executor.prepared, w.executor.removed)
			}
			if tt.check == "job" && tt.want == checkup.StatusOK && !p.awaited {
				t.Error("the doctor did not await the start")
			}
		})
	}
}
