// Package install tests the installation of the agent in a real Kubernetes cluster.
package install

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

const (
	agents = "workflow-agent"
	jobs   = "workflow-agent-jobs"
	label  = "app.kubernetes.io/name=customer-managed-workflow-agent"
)

// TestClusterInstallation installs agents, runs deployments with the stock CLI, and checks that nothing
// remains after the removal. While jobs run, the agents of the manifests are replaced, and then killed.
// The other ways are installed only at full scale, because their objects are compared with those of the
// manifests in internal/dev/tools/install.
func TestClusterInstallation(t *testing.T) {
	t.Parallel()
	s := site{ClusterSite: harness.StartClusterSite(t)}
	s.repo = s.Repo(t.Context(), t).URL
	must.OK(t, s.MakePool(t.Context()))
	s.NewStack(t.Context(), t, "box", "dev", s.Image, nil)
	const created, deleted = "+ 2 created", "- 2 deleted"
	for _, w := range ways {
		if w.name != manifestsWay && !harness.FullScale {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			before := s.objects(t)
			uninstall := s.install(t, w)
			update := s.start(t, "update")
			if w.name == manifestsWay {
				testRights(t, s)
				testPolicy(t, s)
				testStolen(t, s)
				update.wait(t)
				s.replaced(t, update, created)
			} else {
				update.wait(t)
				update.finish(t, created)
				s.cleared(t)
			}
			destroy := s.start(t, "destroy")
			destroy.wait(t)
			s.killed(t, destroy, deleted)
			uninstall()
			for object := range s.objects(t) {
				if !before[object] {
					t.Errorf("after the removal, %s remains", object)
				}
			}
		})
	}
}

// replaced replaces all agents while a job runs. The agent of the job exits after it.
func (s site) replaced(t *testing.T, job *run, result string) {
	t.Helper()
	old := s.agents(t)
	s.kubectl(t, "--namespace", agents, "rollout", "restart", "deployment/workflow-agent-pool")
	s.ready(t)
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	var left []string
	err := harness.Until(ctx, func() (bool, error) {
		left = slices.DeleteFunc(s.agents(t), func(pod string) bool { return !slices.Contains(old, pod) })
		return len(left) == 1, nil
	})
	if err != nil {
		t.Errorf("of the agents %v, %v remain while the job runs (%v)", old, left, err)
	}
	if len(s.jobObjects(t)) != 2 {
		t.Errorf("while the job runs, its objects are %v", s.jobObjects(t))
	}
	job.finish(t, result)
	s.cleared(t)
	for _, pod := range old {
		s.kubectl(t, "--namespace", agents, "wait", "--for=delete", pod, "--timeout=1m")
	}
}

// killed kills all agents while a job runs. Their replacements have other identities and leave the
// job alone.
func (s site) killed(t *testing.T, job *run, result string) {
	t.Helper()
	s.kubectl(t, "--namespace", agents, "delete", "pod", "--selector", label, "--grace-period=1")
	s.ready(t)
	job.finish(t, result)
	pods := s.kubectl(t, "get", "pods", "--namespace", jobs, "-o", "jsonpath={.items[*].status.phase}")
	if pods != "Running" && pods != "Succeeded" {
		t.Errorf("after the job without an agent, the phases of its pods are %q", pods)
	}
}

// agents lists the pods of agents.
func (s site) agents(t *testing.T) []string {
	t.Helper()
	return strings.Fields(s.kubectl(t, "get", "pods", "--namespace", agents, "--selector", label, "-o", "name"))
}

// may asks the cluster whether a service account has a right.
func (s site) may(t *testing.T, namespace, account, verb, resource, in string) bool {
	t.Helper()
	resource, part, _ := strings.Cut(resource, "/")
	const group = "system:serviceaccounts"
	review := map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
		"spec": map[string]any{
			"user":               "system:serviceaccount:" + namespace + ":" + account,
			"groups":             []string{group, group + ":" + namespace, "system:authenticated"},
			"resourceAttributes": map[string]string{"namespace": in, "verb": verb, "resource": resource, "subresource": part},
		},
	}
	var out struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	must.OK(t, s.Cluster.Call(t.Context(), http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", review, &out))
	return out.Status.Allowed
}

// testRights checks what the agent may do, and that jobs may do nothing.
func testRights(t *testing.T, s site) {
	check := func(want bool, verb, resource, namespace string) {
		t.Helper()
		if got := s.may(t, agents, "workflow-agent", verb, resource, namespace); got != want {
			t.Errorf("the agent may %s %s in %s: %t, want %t", verb, resource, namespace, got, want)
		}
		if s.may(t, jobs, "workflow-runner", verb, resource, namespace) {
			t.Errorf("a job may %s %s in %s", verb, resource, namespace)
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
			check(true, verb, resource, jobs)
		}
		for verb := range strings.FieldsSeq(verbs.no) {
			check(false, verb, resource, jobs)
		}
	}
	for _, namespace := range []string{agents, "default"} {
		check(false, "create", "pods", namespace)
		check(false, "get", "secrets", namespace)
	}
}

// testStolen uses the tokens of the installation's service accounts as a thief would: the agent's to
// take over the node, and the jobs' to look around.
func testStolen(t *testing.T, s site) {
	kubeconfig := func(namespace, account string) string {
		t.Helper()
		path := must.Get(s.Cluster.AccountKubeconfig(t.Context(), namespace, account))(t)
		return path
	}
	for what, change := range map[string]string{
		"hostPath":    `"volumes": [{"name": "node", "hostPath": {"path": "/"}}]`,
		"privileged":  `"containers": [{"name": "main", "image": "main", "securityContext": {"privileged": true}}]`,
		"hostNetwork": `"hostNetwork": true`,
	} {
		spec := map[string]any{"containers": []map[string]string{{"name": "main", "image": "main"}}}
		must.OK(t, json.Unmarshal([]byte("{"+change+"}"), &spec))
		pod, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]string{"name": "stolen", "namespace": jobs}, "spec": spec})
		must.OK(t, err)
		_, err = s.Cluster.KubectlWith(t.Context(), bytes.NewReader(pod), "--kubeconfig", kubeconfig(agents, "workflow-agent"), "create", "--dry-run=server", "--filename", "-")
		if err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
			t.Errorf("a pod of the agent with %s: %v, want a refusal", what, err)
		}
	}
	for line := range strings.Lines(s.kubectl(t, "--kubeconfig", kubeconfig(jobs, "workflow-runner"), "auth", "can-i", "--list", "--no-headers", "--namespace", jobs)) {
		// The other lines are about paths that are no resources, such as /healthz.
		if resource := strings.Fields(line)[0]; !strings.HasPrefix(resource, "[") && !strings.HasPrefix(resource, "self") {
			t.Errorf("a job may use %s", line)
		}
	}
}

// testPolicy asks the cluster to create an agent's pod, without creating it. The namespace enforces
// the restricted policy.
func testPolicy(t *testing.T, s site) {
	var deployment struct {
		Spec struct {
			Template map[string]any `json:"template"`
		} `json:"spec"`
	}
	text := s.kubectl(t, "get", "deployment", "workflow-agent-pool", "--namespace", agents, "--output", "json")
	must.OK(t, json.Unmarshal([]byte(text), &deployment))
	pod := deployment.Spec.Template
	pod["apiVersion"], pod["kind"] = "v1", "Pod"
	pod["metadata"] = map[string]any{"name": "agent", "namespace": agents}
	create := func() error {
		t.Helper()
		manifest := must.Get(json.Marshal(pod))(t)
		_, err := s.Cluster.KubectlWith(t.Context(), strings.NewReader(string(manifest)), "create", "--dry-run=server", "--filename", "-")
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
