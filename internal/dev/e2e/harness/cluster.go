package harness

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
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
	c := NeedCluster(t)
	_, tools := Programs(t)
	image, err := lab.NewExecutorImage(t.Context(), tools)
	if err != nil {
		t.Fatal(err)
	}
	return StartSiteIn(t, c, image, serverArgs...)
}

// NeedCluster returns a cluster for the test, or skips the test.
func NeedCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
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
	return c
}

// StartSiteIn is like [StartSite], with a new namespace of the cluster for jobs with the image.
func StartSiteIn(t *testing.T, c *cluster.Cluster, image *lab.Image, serverArgs ...string) *ClusterSite {
	t.Helper()
	bin, _ := Programs(t)
	w := &ClusterSite{Cluster: c, Namespace: fmt.Sprintf("jobs-%d", time.Now().UnixNano())}
	if err := w.importImages(t.Context(), image, lab.NewAgentImage(bin)); err != nil {
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
	// The cluster refuses pods until it has created the namespace's service account.
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := Until(ctx, func() (bool, error) {
		out, err := c.Kubectl(ctx, "get", "serviceaccounts", "--namespace", w.Namespace, "-o", "name")
		return strings.Contains(out, "/default"), err
	}); err != nil {
		t.Fatal(err)
	}
	w.Site = StartSite(t, c.HostIP.String(), serverArgs...)
	return w
}

// importing lets tests that run at the same time import one image after the other.
var importing sync.Mutex

func (w *ClusterSite) importImages(ctx context.Context, image, agent *lab.Image) (err error) {
	importing.Lock()
	defer importing.Unlock()
	if w.Image, err = w.Cluster.Import(ctx, image); err != nil {
		return err
	}
	w.AgentImage, err = w.Cluster.Import(ctx, agent)
	return err
}

// AgentSettings returns the settings of an agent that runs jobs in the namespace.
func (w *ClusterSite) AgentSettings() map[string]string {
	return map[string]string{"kubernetes_namespace": w.Namespace, "image": w.AgentImage, "image_pull_policy": "IfNotPresent"}
}

// StartClusterAgent starts an agent on this machine that runs jobs in the namespace, with the
// administrator's rights.
func (w *ClusterSite) StartClusterAgent(ctx context.Context, settings map[string]string) (*lab.Agent, error) {
	all := w.AgentSettings()
	maps.Copy(all, settings)
	return w.StartAgent(ctx, "kubernetes", all, "KUBECONFIG="+w.Cluster.Admin())
}

// Objects lists the pods and Secrets of the namespace.
func (w *ClusterSite) Objects(ctx context.Context) ([]string, error) {
	out, err := w.Cluster.Kubectl(ctx, "get", "pods,secrets", "--namespace", w.Namespace, "-o", "name")
	return strings.Fields(out), err
}
