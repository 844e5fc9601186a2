package harness

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/cluster"
	"workflowagent/internal/dev/must"
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
	image := must.Get(lab.NewExecutorImage(t.Context(), tools))(t)
	return StartSiteIn(t, c, image, serverArgs...)
}

// shared is the cluster of the package's tests.
var shared struct {
	once    sync.Once
	cluster *cluster.Cluster
	err     error
}

// NeedCluster returns the cluster of the package's tests, or skips the test. [Main] closes it.
func NeedCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	if reason, ok := cluster.Available(); !ok {
		t.Skip(reason)
	}
	shared.once.Do(func() {
		shared.cluster, shared.err = cluster.Need(context.WithoutCancel(t.Context()), cluster.Options{})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// StartSiteIn is like [StartSite], with a new namespace of the cluster for jobs with the image.
func StartSiteIn(t *testing.T, c *cluster.Cluster, image *lab.Image, serverArgs ...string) *ClusterSite {
	t.Helper()
	bin, _ := Programs(t)
	w := &ClusterSite{Cluster: c, Namespace: fmt.Sprintf("jobs-%d", time.Now().UnixNano())}
	must.OK(t, w.importImages(t.Context(), image, lab.NewAgentImage(bin)))
	must.OK(t, c.CreateNamespace(t.Context(), w.Namespace, nil))
	t.Cleanup(func() {
		if err := c.DeleteNamespace(context.Background(), w.Namespace); err != nil {
			t.Error(err)
		}
	})
	w.Site = StartSite(t, c.HostIP.String(), append([]string{"--default-image", w.Image}, serverArgs...)...)
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
	return w.Cluster.Objects(ctx, w.Namespace, "pods", "secrets")
}
