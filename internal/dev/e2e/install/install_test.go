// Package install tests the installation of the agent in a real Kubernetes cluster.
package install

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/cluster"
)

const (
	agents = "workflow-agent"
	jobs   = "workflow-agent-jobs"
	label  = "app.kubernetes.io/name=customer-managed-workflow-agent"
)

// TestManifests applies the manifests and checks the agent's rights, that the agent's pods satisfy
// their namespace's policy, and that nothing remains after the removal. Tests in
// internal/dev/tools/install check that chart and Pulumi program create the same objects.
func TestManifests(t *testing.T) {
	if reason, ok := cluster.Available(); !ok {
		t.Skip(reason)
	}
	c, err := cluster.Need(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "packaging", "kubernetes"))); err != nil {
		t.Fatal(err)
	}
	kubectl(t, c, "apply", "--server-side", "-k", dir)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		_, _ = c.Kubectl(ctx, "delete", "--ignore-not-found", "-k", dir)
	})

	t.Run("rights", func(t *testing.T) { testRights(t, c) })
	t.Run("policy", func(t *testing.T) { testPolicy(t, c) })

	kubectl(t, c, "delete", "--timeout=1m", "-k", dir)
	left := kubectl(t, c, "get", "all,namespaces,configmaps,secrets,serviceaccounts,roles,rolebindings,poddisruptionbudgets",
		"--all-namespaces", "--selector", label, "--output", "name")
	if left != "" {
		t.Errorf("after the removal, these objects remain:\n%s", left)
	}
}

// testRights checks what the agent may do, by impersonation.
func testRights(t *testing.T, c *cluster.Cluster) {
	check := func(want, verb, resource, namespace string) {
		t.Helper()
		whole, part, _ := strings.Cut(resource, "/")
		// The exit code is 1 if the answer is no.
		out, err := c.Kubectl(t.Context(), "auth", "can-i", verb, whole, "--subresource", part,
			"--namespace", namespace, "--as", "system:serviceaccount:"+agents+":workflow-agent")
		if got := strings.TrimSpace(out); got != want {
			t.Errorf("%s %s in %s: %q, want %q (%v)", verb, resource, namespace, got, want, err)
		}
	}
	for resource, verbs := range map[string]struct{ yes, no string }{
		"pods":                  {"create get list watch delete", "update patch deletecollection"},
		"pods/log":              {"get", "create"},
		"pods/exec":             {"", "create get"},
		"events":                {"list", "get create delete"},
		"secrets":               {"create patch delete", "get list watch update deletecollection"},
		"configmaps":            {"", "create get list"},
		"serviceaccounts/token": {"", "create"},
	} {
		for verb := range strings.FieldsSeq(verbs.yes) {
			check("yes", verb, resource, jobs)
		}
		for verb := range strings.FieldsSeq(verbs.no) {
			check("no", verb, resource, jobs)
		}
	}
	for _, namespace := range []string{agents, "default"} {
		check("no", "create", "pods", namespace)
		check("no", "get", "secrets", namespace)
	}
}

// testPolicy asks the cluster to create an agent's pod, without creating it. The namespace enforces
// the restricted policy.
func testPolicy(t *testing.T, c *cluster.Cluster) {
	var deployment struct {
		Spec struct {
			Template map[string]any `json:"template"`
		} `json:"spec"`
	}
	text := kubectl(t, c, "get", "deployment", "workflow-agent-pool", "--namespace", agents, "--output", "json")
	if err := json.Unmarshal([]byte(text), &deployment); err != nil {
		t.Fatal(err)
	}
	pod := deployment.Spec.Template
	pod["apiVersion"], pod["kind"] = "v1", "Pod"
	pod["metadata"] = map[string]any{"name": "agent", "namespace": agents}
	create := func() error {
		t.Helper()
		manifest, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.KubectlWith(t.Context(), strings.NewReader(string(manifest)), "create", "--dry-run=server", "--filename", "-")
		return err
	}
	if err := create(); err != nil {
		t.Error(err)
	}
	spec, _ := pod["spec"].(map[string]any)
	delete(spec, "securityContext")
	if err := create(); err == nil || !strings.Contains(err.Error(), "restricted") {
		t.Errorf("a pod that may run as root: %v, want a refusal", err)
	}
}

func kubectl(t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}
