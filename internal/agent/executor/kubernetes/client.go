package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"workflowagent/internal/termtext"
)

const (
	// callTime bounds each call of the cluster's API, except for streams.
	callTime = 30 * time.Second
	// The client's default of 5 calls per second would delay the jobs of a busy agent.
	callsPerSecond = 50
	callsAtOnce    = 100

	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// LoadConfig returns the connection to the cluster and the default namespace. An agent in a pod uses
// its service account, and any other agent uses the kubeconfig named by KUBECONFIG or in the home
// directory.
func LoadConfig() (_ *rest.Config, namespace string, err error) {
	config, err := rest.InClusterConfig()
	if err == nil {
		name, err := os.ReadFile(namespaceFile)
		return config, strings.TrimSpace(string(name)), err
	}
	if !errors.Is(err, rest.ErrNotInCluster) {
		return nil, "", fmt.Errorf("reading the pod's service account: %w", err)
	}
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil)
	config, err = loaded.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, "", errors.New("no Kubernetes cluster is configured: run the agent in a pod with a service account, or set KUBECONFIG to a kubeconfig file")
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading the kubeconfig: %s", words(err))
	}
	namespace, _, err = loaded.Namespace()
	return config, namespace, err
}

// client calls the cluster's API. It registers only the types of the core group, because the
// generated clients would link those of all groups.
type client struct {
	rest       *rest.RESTClient
	parameters runtime.ParameterCodec
	host       string
}

func newClient(config *rest.Config) (*client, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c := rest.CopyConfig(config)
	c.APIPath = "/api"
	c.GroupVersion = &corev1.SchemeGroupVersion
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.QPS, c.Burst = callsPerSecond, callsAtOnce
	c.WarningHandler = rest.NoWarnings{}
	caller, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster at %s: %w", config.Host, err)
	}
	return &client{rest: caller, parameters: runtime.NewParameterCodec(scheme), host: config.Host}, nil
}

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callTime)
}

// createPod creates a pod, or checks with dryRun whether the cluster would create it. warned receives
// the cluster's warnings.
func (c *client) createPod(ctx context.Context, pod *corev1.Pod, dryRun bool, warned rest.WarningHandler) (*corev1.Pod, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	created := new(corev1.Pod)
	err := c.rest.Post().WarningHandler(warned).Namespace(pod.Namespace).Resource("pods").
		VersionedParams(&options, c.parameters).Body(pod).Do(ctx).Into(created)
	return created, err
}

func (c *client) pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	found := new(corev1.Pod)
	err := c.rest.Get().Namespace(namespace).Resource("pods").Name(name).Do(ctx).Into(found)
	return found, err
}

func (c *client) pods(ctx context.Context, namespace, selector string, limit int64) ([]corev1.Pod, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var found corev1.PodList
	err := c.rest.Get().Namespace(namespace).Resource("pods").
		VersionedParams(&metav1.ListOptions{LabelSelector: selector, Limit: limit}, c.parameters).Do(ctx).Into(&found)
	return found.Items, err
}

// deletePod deletes the pod, but not another pod of the same name. A negative grace period stands
// for the pod's own. A missing pod is not an error.
func (c *client) deletePod(ctx context.Context, pod *corev1.Pod, grace int64) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	if grace >= 0 {
		options.GracePeriodSeconds = &grace
	}
	err := c.rest.Delete().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).Body(&options).Do(ctx).Error()
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (c *client) createSecret(ctx context.Context, secret *corev1.Secret) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return c.rest.Post().Namespace(secret.Namespace).Resource("secrets").Body(secret).Do(ctx).Error()
}

func (c *client) patchSecret(ctx context.Context, namespace, name string, change any) error {
	patch, err := json.Marshal(change)
	if err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	return c.rest.Patch(types.MergePatchType).Namespace(namespace).Resource("secrets").Name(name).Body(patch).Do(ctx).Error()
}

func (c *client) deleteSecret(ctx context.Context, namespace, name string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	err := c.rest.Delete().Namespace(namespace).Resource("secrets").Name(name).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// events returns the events about a pod, which explain why it does not start.
func (c *client) events(ctx context.Context, pod *corev1.Pod) ([]corev1.Event, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var found corev1.EventList
	err := c.rest.Get().Namespace(pod.Namespace).Resource("events").
		VersionedParams(&metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod.UID)}, c.parameters).Do(ctx).Into(&found)
	return found.Items, err
}

// logs returns a stream of a container's output.
func (c *client) logs(ctx context.Context, pod *corev1.Pod, options corev1.PodLogOptions) (io.ReadCloser, error) {
	return c.rest.Get().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("log").
		VersionedParams(&options, c.parameters).Stream(ctx)
}

// version returns the minor version of the cluster, such as 36.
func (c *client) version(ctx context.Context) (string, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	data, err := c.rest.Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return "", err
	}
	var info struct {
		Minor string `json:"minor"`
	}
	err = json.Unmarshal(data, &info)
	return info.Minor, err
}

// answered reports whether err is the API's final answer to a call, so that the call had no effect
// and a repetition would fail as well.
func answered(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) ||
		apierrors.IsUnauthorized(err) || apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsUnsupportedMediaType(err)
}

// overQuota reports whether a resource quota of the namespace does not allow an object now. The API
// has no code for it.
func overQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// words returns the API's own words about an error in one line.
func words(err error) string {
	return termtext.OneLine(err.Error(), 1000)
}
