package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/kubernetes/podspec"
	"workflowagent/internal/dev/executortest"
	"workflowagent/internal/dev/executortest/program"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/cluster"
	"workflowagent/internal/workflow"
)

// setupTime includes the build of the cluster's programs.
const setupTime = 20 * time.Minute

// host is the cluster of the package's tests.
type host struct {
	cluster    *cluster.Cluster
	admin      *rest.Config
	agentImage string // contains the test runner in place of the runner
	jobImage   string // empty
}

var shared struct {
	once    sync.Once
	reason  string // the reason if no cluster is available
	err     error
	cluster *cluster.Cluster
	host    host
}

func needCluster(t *testing.T) host {
	t.Helper()
	shared.once.Do(func() { shared.reason, shared.err = startCluster() })
	if shared.reason != "" {
		t.Skip("no Kubernetes cluster: ", shared.reason)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.host
}

func TestMain(m *testing.M) {
	// TestConformance requires it, and runs in parallel with other tests.
	if err := os.Setenv("PULUMI_AGENT_TOKEN", executortest.AgentSecret); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if shared.cluster != nil {
		if err := shared.cluster.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func startCluster() (reason string, err error) {
	if reason, ok := cluster.Available(); !ok {
		return reason, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), setupTime)
	defer cancel()
	if shared.cluster, err = cluster.Need(ctx, cluster.Options{}); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "wfk")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	runner, err := executortest.BuildRunner(dir, executor.RunnerName)
	if err != nil {
		return "", err
	}
	h := host{cluster: shared.cluster}
	if h.agentImage, err = h.cluster.Import(ctx, lab.NewProgramImage("workflowagent/executortest-agent", map[string]string{podspec.AgentRunnerPath: runner}, podspec.AgentRunnerPath)); err != nil {
		return "", err
	}
	if h.jobImage, err = h.cluster.Import(ctx, lab.NewProgramImage("workflowagent/executortest-job", nil)); err != nil {
		return "", err
	}
	h.admin, err = clientcmd.BuildConfigFromFlags("", h.cluster.Admin())
	shared.host = h
	return "", err
}

func testLog(t *testing.T) *logrus.Entry {
	log := logrus.New()
	log.SetOutput(t.Output())
	log.SetLevel(logrus.DebugLevel)
	return logrus.NewEntry(log)
}

var spaces atomic.Int64

// space is a namespace of a test. Tests with a namespace run in parallel, because they mostly wait.
type space struct {
	host
	t      *testing.T
	name   string
	client *client // of an administrator
}

func newSpace(t *testing.T) *space {
	t.Helper()
	h := needCluster(t)
	t.Parallel()
	c, err := newClient(h.admin)
	if err != nil {
		t.Fatal(err)
	}
	s := &space{host: h, t: t, name: fmt.Sprintf("jobs-%d-%d", os.Getpid(), spaces.Add(1)), client: c}
	s.create("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}})
	t.Cleanup(func() {
		if err := c.rest.Delete().Resource("namespaces").Name(s.name).Do(context.Background()).Error(); err != nil {
			t.Error(err)
		}
	})
	// A pod is refused until the cluster has created the namespace's service account.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for c.rest.Get().Namespace(s.name).Resource("serviceaccounts").Name("default").Do(ctx).Error() != nil {
		if ctx.Err() != nil {
			t.Fatal("the namespace has no service account")
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return s
}

// create creates an object in the namespace, or in the cluster for a namespace itself.
func (s *space) create(resource string, object runtime.Object) {
	s.t.Helper()
	call := s.client.rest.Post().Resource(resource)
	if resource != "namespaces" {
		call = call.Namespace(s.name)
	}
	if err := call.Body(object).Do(s.t.Context()).Error(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *space) builder(o podspec.Config) *podspec.Builder {
	s.t.Helper()
	o.Namespace, o.AgentImage = s.name, s.agentImage
	b, err := podspec.New(podspec.Options{Config: o})
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

func (s *space) open(t *testing.T, o Options) *Executor {
	t.Helper()
	o.Log = testLog(t)
	if o.Config == nil {
		o.Config = s.admin
	}
	if o.Pods == nil {
		o.Pods = s.builder(podspec.Config{})
	}
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (s *space) spec() executor.Spec {
	return executor.Spec{Image: &workflow.Image{Reference: s.jobImage}, Patience: 10 * time.Second}
}

// objects returns the names of the job's pod and Secret that exist.
func (s *space) objects(name string) []string {
	s.t.Helper()
	var out []string
	for _, resource := range []string{"pods", "secrets"} {
		var found struct {
			Items []metav1.PartialObjectMetadata `json:"items"`
		}
		data, err := s.client.rest.Get().Namespace(s.name).Resource(resource).DoRaw(context.Background())
		if err == nil {
			err = json.Unmarshal(data, &found)
		}
		if err != nil {
			s.t.Fatal(err)
		}
		for _, o := range found.Items {
			if o.Name == name {
				out = append(out, resource+"/"+o.Name)
			}
		}
	}
	return out
}

func jobOf(t *testing.T, h executor.Handle) job {
	t.Helper()
	var j job
	if err := h.Decode(Name, &j); err != nil {
		t.Fatal(err)
	}
	return j
}

// breaking loses the response to the creation of a pod.
type breaking struct{ next http.RoundTripper }

func (b breaking) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(r)
	if err == nil && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods") && r.URL.Query().Get("dryRun") == "" {
		_ = response.Body.Close()
		return nil, fmt.Errorf("the connection broke")
	}
	return response, err
}

func launchDocument(t *testing.T, actions ...program.Action) []byte {
	t.Helper()
	data, err := json.Marshal(program.Launch{Actions: actions})
	if err != nil {
		t.Fatal(err)
	}
	return data
}
