package kubernetes

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"workflowagent/internal/agent/executor/kubernetes/podspec"
)

// CopyPod returns, as YAML, a pod for debugging the named pod of a job. The cluster must still have
// the job's pod. See [podspec.Copy].
func (e *Executor) CopyPod(ctx context.Context, name string, life time.Duration) ([]byte, error) {
	namespace := e.opts.Pods.Namespace()
	pod, err := e.client.pod(ctx, namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("namespace %s has no pod %s: the pod of a job that has ended remains only if debug_pod was set when it started", namespace, name)
	case err != nil:
		return nil, fmt.Errorf("reading the pod %s in namespace %s: %s", name, namespace, words(err))
	case pod.Labels[podspec.LabelName] != podspec.NameValue || pod.Annotations[podspec.LabelJob] == "":
		return nil, fmt.Errorf("the pod %s in namespace %s is not the pod of a job: name a pod with the label %s=%s", name, namespace, podspec.LabelName, podspec.NameValue)
	}
	return podspec.YAML(podspec.Copy(pod, life))
}
