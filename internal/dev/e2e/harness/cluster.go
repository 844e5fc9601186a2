package harness

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/cluster"
)

// ClusterSite is a [Site] with a namespace of a Kubernetes cluster, whose pods reach the server.
type ClusterSite struct {
	*Site
	Cluster   *cluster.Cluster
	Namespace string
	Image     string // image of jobs, with pulumi
	// AgentImage contains the agent and the runner, at their paths in the released image.
	AgentImage string
}

// StartClusterSite is like [StartSite], with a cluster.
func StartClusterSite(t *testing.T, serverArgs ...string) *ClusterSite {
	t.Helper()
	if reason, ok := cluster.Available(); !ok {
		t.Skip(reason)
	}
	bin, tools := Programs(t)
	c, err := cluster.Need(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	image, err := lab.NewExecutorImage(t.Context(), tools)
	if err != nil {
		t.Fatal(err)
	}
	w := &ClusterSite{Cluster: c, Namespace: fmt.Sprintf("jobs-%d", time.Now().UnixNano())}
	if w.Image, err = c.Import(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	if w.AgentImage, err = c.Import(t.Context(), lab.NewAgentImage(bin)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Kubectl(t.Context(), "create", "namespace", w.Namespace); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := c.Kubectl(context.Background(), "delete", "namespace", w.Namespace, "--wait=false"); err != nil {
			t.Error(err)
		}
	})
	w.Site = StartSite(t, c.HostIP.String(), serverArgs...)
	return w
}

// StartClusterAgent starts an agent on this machine that runs jobs in the namespace, with the
// administrator's rights.
func (w *ClusterSite) StartClusterAgent(ctx context.Context, settings map[string]string) (*lab.Agent, error) {
	all := map[string]string{"kubernetes_namespace": w.Namespace, "image": w.AgentImage, "image_pull_policy": "IfNotPresent"}
	maps.Copy(all, settings)
	return w.StartAgent(ctx, "kubernetes", all, "KUBECONFIG="+w.Cluster.Admin())
}

// Objects lists the pods and Secrets of the namespace.
func (w *ClusterSite) Objects(ctx context.Context) ([]string, error) {
	out, err := w.Cluster.Kubectl(ctx, "get", "pods,secrets", "--namespace", w.Namespace, "-o", "name")
	return strings.Fields(out), err
}
