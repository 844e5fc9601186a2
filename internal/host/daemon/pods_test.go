package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/workflow"
)

// TestPodSettings checks the effect of each setting on worker pods.
func TestPodSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(file, []byte("spec: {nodeSelector: {from: file}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func(environ ...string) *config.Config {
		t.Helper()
		c, err := config.Load(config.LoadOptions{Environ: append(environ, "PULUMI_AGENT_DEPLOY_TARGET=kubernetes", "PULUMI_AGENT_IMAGE=example.com/agent:1")})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := load(
		"PULUMI_AGENT_KUBERNETES_NAMESPACE=jobs", "PULUMI_AGENT_POD_TEMPLATE_FILE="+file, "PULUMI_AGENT_IMAGE_PULL_POLICY=Always",
		"PULUMI_AGENT_SERVICE_ACCOUNT_NAME=deployer", "PULUMI_AGENT_NUM_CPUS=2", "PULUMI_AGENT_MEM_QUANTITY=4", "PULUMI_AGENT_DEBUG_POD=true",
		"PULUMI_AGENT_POD_START_TIMEOUT=3m", "PULUMI_AGENT_DEBUG_POD_TTL=2h",
		"PULUMI_AGENT_KUBERNETES_WORKSPACE_CLAIM=workspaces",
	)
	pods, err := newPods(c, "default")
	if err != nil {
		t.Fatal(err)
	}
	spec := executor.Spec{JobID: "a", Epoch: 1, Owner: "b", Image: &workflow.Image{Reference: "example.com/job:1"}, Workspace: strings.Repeat("0", 64)}
	pod, err := pods.Pod(spec)
	if err != nil {
		t.Fatal(err)
	}
	main := pod.Spec.Containers[0]
	for what, got := range map[string][2]string{
		"namespace":         {pod.Namespace, "jobs"},
		"builder namespace": {pods.Namespace(), "jobs"},
		"template":          {pod.Spec.NodeSelector["from"], "file"},
		"agent's image":     {pod.Spec.InitContainers[0].Image, "example.com/agent:1"},
		"pull policy":       {string(main.ImagePullPolicy), "Always"},
		"service account":   {pod.Spec.ServiceAccountName, "deployer"},
		"CPUs":              {main.Resources.Requests.Cpu().String(), "2"},
		"memory":            {main.Resources.Requests.Memory().String(), "4Gi"},
		"workspaces":        {pod.Spec.Volumes[3].PersistentVolumeClaim.ClaimName, "workspaces"},
		"debug label":       {pod.Labels["workflowagent/debug"], "true"},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %q, want %q", what, got[0], got[1])
		}
	}
	if c.PodStartTimeout != 3*time.Minute || c.DebugPodTTL != 2*time.Hour {
		t.Errorf("start timeout %s, lifetime of kept pods %s", c.PodStartTimeout, c.DebugPodTTL)
	}

	c = load("PULUMI_AGENT_KUBERNETES_WORKSPACE_HOST_PATH=/var/lib/workspaces")
	if pods, err = newPods(c, "default"); err != nil {
		t.Fatal(err)
	}
	if pod, err = pods.Pod(spec); err != nil || pod.Spec.Volumes[3].HostPath.Path != "/var/lib/workspaces" {
		t.Errorf("volumes %v, %v", pod.Spec.Volumes, err)
	}

	c = load("PULUMI_AGENT_POD_TEMPLATE=\nspec:\n  nodeSelector:\n    from: variable\n", "PULUMI_AGENT_POD_TEMPLATE_FILE="+file)
	if pods, err = newPods(c, "default"); err != nil {
		t.Fatal(err)
	}
	if pod, err = pods.Pod(spec); err != nil || pod.Namespace != "default" || pod.Spec.NodeSelector["from"] != "variable" {
		t.Errorf("namespace %s, selector %v, %v", pod.Namespace, pod.Spec.NodeSelector, err)
	}

	c = load("PULUMI_AGENT_POD_TEMPLATE=\nspec:\n  restartPolicy: Always\n")
	if _, err := newPods(c, "default"); err == nil || !strings.HasPrefix(err.Error(), "env PULUMI_AGENT_POD_TEMPLATE:3: spec.restartPolicy: ") {
		t.Errorf("a bad template: %v", err)
	}
}
