package main

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// TestScaledJob checks that the example for KEDA starts the same pods as the manifests' Deployment,
// except that its agents exit after one job and that nothing probes or drains them.
func TestScaledJob(t *testing.T) {
	podOf := func(o object, path ...string) object {
		for _, name := range path {
			o, _ = o[name].(object)
		}
		return o
	}
	containerOf := func(pod object) object {
		list, _ := pod["containers"].([]any)
		container, _ := list[0].(object)
		return container
	}
	want := podOf(kustomized(t)["Deployment workflow-agent/workflow-agent-pool"], "spec", "template", "spec")
	got := podOf(parse(t, []byte(read(t, "../../../../examples/kubernetes/keda.yaml")))["ScaledJob workflow-agent/workflow-agent"],
		"spec", "jobTargetRef", "template", "spec")
	want["restartPolicy"] = "Never"
	agent := containerOf(want)
	for _, name := range []string{"livenessProbe", "readinessProbe", "lifecycle", "ports", "imagePullPolicy"} {
		delete(agent, name)
	}
	env, _ := agent["env"].([]any)
	agent["env"] = append(env, object{"name": "PULUMI_AGENT_SINGLE_RUN", "value": "true"})
	normalize(want)
	normalize(got)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("the example differs (-manifests +example):\n%s", diff)
	}
}
