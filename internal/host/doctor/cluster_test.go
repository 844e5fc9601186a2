package doctor

import (
	"errors"
	"testing"
)

func TestClusterAnswers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		brk   func(w *world, p *latePlace)
		check string
		want  Status
		words []string
	}{
		{"a cluster", func(*world, *latePlace) {}, "cluster", OK, []string{"namespace jobs"}},
		{"no cluster", func(_ *world, p *latePlace) {
			p.checkErr = errors.New("the cluster at x does not respond: check its address")
		}, "cluster", Fail, []string{"the cluster at x does not respond", "check its address"}},
		{"no configuration", func(w *world, _ *latePlace) {
			w.options.Executor, w.options.Pods, w.options.ExecutorErr = nil, nil, errors.New("num_cpus: is wrong")
		}, "cluster", Fail, []string{"num_cpus: is wrong"}},
		{"one namespace", func(w *world, _ *latePlace) { w.options.AgentNamespace = "jobs" }, "cluster", Warn, []string{"the agent's own namespace jobs", "kubernetes_namespace"}},
		{"no template", func(w *world, _ *latePlace) { w.options.Pods = pods{} }, "pod-template", OK, []string{"no pod template"}},
		{"a template", func(w *world, _ *latePlace) { w.options.Pods = pods{origin: "/t"} }, "pod-template", OK, []string{"/t is valid"}},
		{"a notable template", func(w *world, _ *latePlace) {
			w.options.Pods = pods{origin: "/t", notes: []string{"sets hostPID"}}
		}, "pod-template", Warn, []string{"/t weakens", "sets hostPID"}},
		{"a pod", func(*world, *latePlace) {}, "job", OK, []string{"a pod with pulumi/pulumi:latest ran the runner"}},
		{"a pod that does not start", func(_ *world, p *latePlace) { p.awaitErr = errors.New("0/3 nodes are available") }, "job", Fail, []string{"0/3 nodes are available"}},
		{"an image that is not allowed", func(w *world, _ *latePlace) { w.set("allowed_images=example.com/**") }, "job", Fail, []string{"allowed_images does not allow pulumi/pulumi:latest", "--job-image"}},
		{"offline", func(w *world, _ *latePlace) { w.options.Offline = true }, "cluster", Skip, []string{"--offline"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.set("deploy_target=kubernetes", "image=agent")
			w.place.report.Traces = w.place.report.Traces[:1] // without the token's check, a job gets one URL
			p := &latePlace{place: w.place}
			w.options.Executor, w.options.Pods = p, pods{}
			tt.brk(w, p)
			want(t, w.examine(t, tt.check), tt.check, tt.want, tt.words...)
			if tt.check == "job" && w.place.prepared != w.place.removed {
				t.Errorf("prepared: %t, removed: %t", w.place.prepared, w.place.removed)
			}
			if tt.check == "job" && tt.want == OK && !p.awaited {
				t.Error("the doctor did not await the start")
			}
		})
	}
}
