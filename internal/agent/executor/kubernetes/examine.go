package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"workflowagent/internal/agent/executor"
)

// Facts describe a cluster and the namespace of jobs, for the doctor.
type Facts struct {
	Host    string // the address of the cluster's API
	Version string // such as 1.36
	// PodSecurity is the Pod Security Standard that the namespace enforces, or "" if it enforces none
	// or if it is unknown.
	PodSecurity string
	// Readable reports whether the agent may read the namespace, so that PodSecurity is known.
	Readable bool
	Missing  []string // rights in the namespace that jobs need and that the agent lacks
	Wide     []string // rights of the agent that jobs do not need, and that an attacker could use
}

// right is a right in a namespace. If the namespace is "", it is a right in all namespaces.
type right struct {
	Verb        string `json:"verb"`
	Group       string `json:"group,omitempty"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
}

func (r right) String() string {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	if r.Namespace == "" {
		return fmt.Sprintf("%s %s in all namespaces", r.Verb, resource)
	}
	return fmt.Sprintf("%s %s in namespace %s", r.Verb, resource, r.Namespace)
}

const rbacGroup = "rbac.authorization.k8s.io"

// needed returns the rights that the executor uses.
func needed(namespace string) []right {
	var out []right
	for _, verb := range []string{"create", "get", "list", "watch", "delete"} {
		out = append(out, right{Verb: verb, Resource: "pods", Namespace: namespace})
	}
	out = append(
		out,
		right{Verb: "get", Resource: "pods", Subresource: "log", Namespace: namespace},
		right{Verb: "list", Resource: "events", Namespace: namespace},
	)
	for _, verb := range []string{"create", "patch", "delete"} {
		out = append(out, right{Verb: verb, Resource: "secrets", Namespace: namespace})
	}
	return out
}

// excessive returns rights that an agent should not have.
func excessive(namespace, agentNamespace string) []right {
	out := []right{
		{Verb: "get", Resource: "secrets", Namespace: namespace},
		{Verb: "list", Resource: "secrets", Namespace: namespace},
		{Verb: "watch", Resource: "secrets", Namespace: namespace},
		{Verb: "create", Resource: "pods", Subresource: "exec", Namespace: namespace},
		{Verb: "create", Resource: "pods", Subresource: "attach", Namespace: namespace},
		{Verb: "patch", Resource: "pods", Subresource: "ephemeralcontainers", Namespace: namespace},
		{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: namespace},
		{Verb: "create", Group: rbacGroup, Resource: "rolebindings", Namespace: namespace},
		{Verb: "create", Resource: "pods"},
		{Verb: "list", Resource: "pods"},
		{Verb: "get", Resource: "secrets"},
		{Verb: "list", Resource: "secrets"},
		{Verb: "create", Group: rbacGroup, Resource: "clusterrolebindings"},
	}
	if agentNamespace != "" && agentNamespace != namespace {
		out = append(
			out,
			right{Verb: "create", Resource: "pods", Namespace: agentNamespace},
			right{Verb: "get", Resource: "secrets", Namespace: agentNamespace},
			right{Verb: "list", Resource: "secrets", Namespace: agentNamespace},
		)
	}
	return out
}

// Examine describes the cluster. It changes nothing. agentNamespace is the namespace of the agent's
// own pod, or "". An error means that the cluster did not respond.
func (e *Executor) Examine(ctx context.Context, agentNamespace string) (Facts, error) {
	namespace := e.opts.Pods.Namespace()
	facts := Facts{Host: e.client.host}
	version, err := e.client.version(ctx)
	if err != nil {
		return facts, e.silent(err)
	}
	facts.Version = "1." + strings.TrimRight(version, "+")
	lacking, err := e.judge(ctx, needed(namespace), false)
	if err != nil {
		return facts, e.silent(err)
	}
	having, err := e.judge(ctx, excessive(namespace, agentNamespace), true)
	if err != nil {
		return facts, e.silent(err)
	}
	for _, r := range lacking {
		facts.Missing = append(facts.Missing, r.String())
	}
	for _, r := range having {
		everywhere := r
		everywhere.Namespace = ""
		if r.Namespace == "" || !slices.Contains(having, everywhere) {
			facts.Wide = append(facts.Wide, r.String())
		}
	}
	facts.PodSecurity, err = e.client.podSecurity(ctx, namespace)
	facts.Readable = err == nil
	return facts, nil
}

// TooOld reports whether the cluster lacks a feature that jobs need, and returns the oldest version
// that has it.
func (f Facts) TooOld() (least string, old bool) {
	minor, err := strconv.Atoi(strings.TrimPrefix(f.Version, "1."))
	return "1." + strconv.Itoa(minMinor), err == nil && minor < minMinor
}

func (e *Executor) silent(err error) error {
	return fmt.Errorf("the cluster at %s does not respond as expected: %s", e.client.host, words(err))
}

// judge returns the rights that the agent has, or those that it lacks.
func (e *Executor) judge(ctx context.Context, rights []right, want bool) ([]right, error) {
	type verdict struct {
		has bool
		err error
	}
	verdicts := make([]verdict, len(rights))
	var asking sync.WaitGroup
	for i, r := range rights {
		asking.Go(func() { verdicts[i].has, verdicts[i].err = e.client.may(ctx, r) })
	}
	asking.Wait()
	var out []right
	for i, r := range rights {
		if verdicts[i].err != nil {
			return nil, verdicts[i].err
		}
		if verdicts[i].has == want {
			out = append(out, r)
		}
	}
	return out, nil
}

// may reports whether the agent has a right.
func (c *client) may(ctx context.Context, r right) (bool, error) {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": r},
	})
	if err != nil {
		return false, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	data, err := c.rest.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").
		SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Body(body).Do(ctx).Raw()
	if err != nil {
		return false, err
	}
	var review struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	err = json.Unmarshal(data, &review)
	return review.Status.Allowed, err
}

// podSecurity returns the Pod Security Standard that a namespace enforces.
func (c *client) podSecurity(ctx context.Context, namespace string) (string, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	found := new(corev1.Namespace)
	err := c.rest.Get().Resource("namespaces").Name(namespace).Do(ctx).Into(found)
	return found.Labels["pod-security.kubernetes.io/enforce"], err
}

// Admission is a cluster's verdict on a pod.
type Admission struct {
	// Cause classifies the refusal: "quota", "limits", "podsecurity", "namespace", "account", "pod" or
	// "" if the cluster accepts the pod.
	Cause string
	Words string // the cluster's explanation of its refusal
	// Changed lists what admission adds to the pod, such as containers.
	Changed  []string
	Warnings []string // of the cluster, which accepts the pod anyway
}

// TryPod has the cluster check the pod of a job without creating it. An error means that the cluster
// did not respond.
func (e *Executor) TryPod(ctx context.Context, spec executor.Spec) (Admission, error) {
	pod, err := e.opts.Pods.Pod(spec)
	if err != nil {
		return Admission{}, err
	}
	var told warnings
	created, err := e.client.createPod(ctx, pod, true, &told)
	switch {
	case err == nil:
		return Admission{Warnings: told, Changed: additions(pod, created)}, nil
	case answered(err):
		return Admission{Cause: refusal(err), Words: words(err), Warnings: told}, nil
	}
	return Admission{}, e.silent(err)
}

// warnings collects the warnings of a response.
type warnings []string

func (w *warnings) HandleWarningHeader(code int, _, text string) {
	if code == 299 { // the only code of warnings for people
		*w = append(*w, oneLine(text))
	}
}

// refusal classifies an error of the creation of a pod. The API has no code for most causes.
func refusal(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "exceeded quota"), strings.Contains(text, "failed quota"):
		return "quota"
	case strings.Contains(text, "violates PodSecurity"):
		return "podsecurity"
	case strings.Contains(text, "error looking up service account"), strings.Contains(text, "serviceaccount"):
		return "account"
	case strings.Contains(text, "usage per Container"), strings.Contains(text, "usage per Pod"), strings.Contains(text, "limit to request ratio"),
		strings.Contains(text, "must be less than or equal to"):
		return "limits"
	case apierrors.IsNotFound(err):
		return "namespace"
	}
	return "pod"
}

// additions returns what admission has added to a pod that affects how it runs.
func additions(before, after *corev1.Pod) []string {
	var out []string
	for _, list := range []struct {
		name          string
		before, after []corev1.Container
	}{
		{"init container", before.Spec.InitContainers, after.Spec.InitContainers},
		{"container", before.Spec.Containers, after.Spec.Containers},
	} {
		for _, c := range list.after {
			if !slices.ContainsFunc(list.before, func(b corev1.Container) bool { return b.Name == c.Name }) {
				out = append(out, fmt.Sprintf("admission adds the %s %s (%s)", list.name, c.Name, c.Image))
			}
		}
	}
	for _, c := range after.Spec.Containers {
		i := slices.IndexFunc(before.Spec.Containers, func(b corev1.Container) bool { return b.Name == c.Name })
		if i >= 0 && before.Spec.Containers[i].Image != c.Image {
			out = append(out, fmt.Sprintf("admission changes the image of %s to %s", c.Name, c.Image))
		}
		if i < 0 {
			continue
		}
		for resource, limit := range c.Resources.Limits {
			if _, set := before.Spec.Containers[i].Resources.Limits[resource]; !set {
				out = append(out, fmt.Sprintf("admission limits %s of %s to %s", resource, c.Name, limit.String()))
			}
		}
	}
	slices.Sort(out)
	return out
}
