package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/kubernetes"
	"workflowagent/internal/agent/executor/kubernetes/podspec"
	"workflowagent/internal/workflow"
)

// cluster is the executor of the Kubernetes target.
type cluster struct {
	*kubernetes.Executor
	pods      *podspec.Builder
	namespace string // the default namespace: the agent's own or that of the kubeconfig
}

func newCluster(c *config.Config, log *logrus.Entry) (cluster, error) {
	connection, namespace, err := kubernetes.LoadConfig()
	if err != nil {
		return cluster{}, config.Invalid(err)
	}
	pods, err := newPods(c, namespace)
	if err != nil {
		return cluster{}, err
	}
	place, err := kubernetes.New(kubernetes.Options{
		Config:          connection,
		Pods:            pods,
		PodStartTimeout: c.PodStartTimeout,
		DebugPodTTL:     c.DebugPodTTL,
		Log:             log,
	})
	if err != nil {
		return cluster{}, err
	}
	return cluster{place, pods, namespace}, nil
}

var _ executor.Launcher = cluster{}

// newPods returns the builder of worker pods. The namespace is the default one.
func newPods(c *config.Config, namespace string) (*podspec.Builder, error) {
	options := podspec.Options{Config: c.Pods, TemplateOrigin: c.Source("pod_template").String(), DefaultTemplateFile: config.DefaultPodTemplateFile}
	options.Namespace = cmp.Or(options.Namespace, namespace)
	pods, err := podspec.New(options)
	if err != nil {
		return nil, config.Invalid(err)
	}
	return pods, nil
}

// PrintPod prints the pod that the agent would start for a sample job in an image, as YAML, and
// returns what the administrator should know about the template. It does not connect to a cluster.
func PrintPod(c *config.Config, image string, out io.Writer) (notes []string, err error) {
	pods, err := newPods(c, "")
	if err != nil {
		return nil, err
	}
	pod, err := pods.Pod(executor.Spec{
		JobID: "sample", Epoch: 1, Owner: "sample",
		Labels: map[string]string{"deployment_id": "sample", "stack": "organization/project/stack"},
		Image:  &workflow.Image{Reference: image}, Timeout: time.Hour, Patience: 15 * time.Minute,
	})
	if err != nil {
		return nil, config.Invalid(err)
	}
	text, err := podspec.YAML(pod)
	if err != nil {
		return nil, err
	}
	if _, err := out.Write(text); err != nil {
		return nil, fmt.Errorf("printing the pod: %w", err)
	}
	return pods.Notes(), nil
}

// CopyPod prints, as YAML, a copy of a job's pod for debugging, which lives for at most life.
func CopyPod(ctx context.Context, c *config.Config, name string, life time.Duration, out io.Writer) error {
	if c.DeployTarget != config.TargetKubernetes {
		return config.Invalid(fmt.Errorf("deploy_target is %s: only jobs in Kubernetes have pods", c.DeployTarget))
	}
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	place, err := newCluster(c, logrus.NewEntry(quiet))
	if err != nil {
		return err
	}
	text, err := place.CopyPod(ctx, name, life)
	if err = errors.Join(err, place.Close()); err != nil {
		return err
	}
	if _, err := out.Write(text); err != nil {
		return fmt.Errorf("printing the pod: %w", err)
	}
	return nil
}
