package install

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// site is a server on this machine and a cluster that pulls no images.
type site struct {
	*harness.ClusterSite
	repo string // URL of the program
}

func (s site) kubectl(t *testing.T, args ...string) string { return s.kubectlWith(t, "", args...) }

func (s site) kubectlWith(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out := must.Get(s.Cluster.KubectlWith(t.Context(), strings.NewReader(stdin), args...))(t)
	return strings.TrimSpace(out)
}

// way is one way to install agents. Both functions return the arguments that name the objects for
// kubectl, and its standard input.
type way struct {
	name    string
	objects func(t *testing.T, s site) (args []string, stdin string)
	// namespace is whether the agent's namespace is not among the objects.
	namespace bool
}

// manifestsWay is the way that CI tests.
const manifestsWay = "manifests"

var ways = []way{{manifestsWay, manifests, false}, {"chart", chart, true}, {"program", pulumiProgram, false}}

// manifests copies the manifests and edits the copy as docs/kubernetes.md tells users to. The lab's
// node cannot pull images, so the agent's pods use the one that was imported.
func manifests(t *testing.T, s site) ([]string, string) {
	dir := t.TempDir()
	root := must.Get(lab.Root())(t)
	must.OK(t, os.CopyFS(dir, os.DirFS(filepath.Join(root, "packaging", "kubernetes"))))
	image, tag, _ := strings.Cut(s.AgentImage, ":")
	edit(t, filepath.Join(dir, "kustomization.yaml"),
		"registry.example.com/pulumi/customer-managed-workflow-agent", image, "newTag: v1.2.3", `newTag: "`+tag+`"`) // the tag can look like a number
	edit(t, filepath.Join(dir, "agent-config.env"),
		"https://deployments.example.com", s.Server.URL, "PULL_POLICY=Always", "PULL_POLICY=IfNotPresent")
	s.trustCluster(t)
	root = filepath.Join(dir, "kustomization.yaml")
	text := must.Get(os.ReadFile(root))(t)
	before, after, _ := strings.Cut(string(text), "secretGenerator:")
	_, after, found := strings.Cut(after, "replacements:")
	if !found {
		t.Fatalf("%s does not contain secretGenerator and replacements", root)
	}
	must.OK(t, os.WriteFile(root, []byte(before+"components: [components/oidc]\nreplacements:"+after), 0o600))
	edit(t, filepath.Join(dir, "components", "oidc", "kustomization.yaml"), "ORGANIZATION\n", s.Server.Organization+"\n", "POOL-ID", s.Pool.ID,
		"expirationSeconds: 3600", "expirationSeconds: 600")
	edit(t, filepath.Join(dir, "base", "deployment.yaml"), "imagePullPolicy: Always", "imagePullPolicy: IfNotPresent",
		"periodSeconds: 10", "periodSeconds: 1") // of the readiness probe
	return []string{"-k", dir}, ""
}

// trustCluster lets the agents' service account exchange its tokens for tokens of the pool. The server
// cannot reach the cluster's keys, so they are registered with the issuer.
func (s site) trustCluster(t *testing.T) {
	t.Helper()
	var discovery struct{ Issuer string }
	must.OK(t, json.Unmarshal([]byte(s.kubectl(t, "get", "--raw", "/.well-known/openid-configuration")), &discovery))
	base := "/api/orgs/" + s.Server.Organization
	call := func(method, path string, in, out any) {
		t.Helper()
		must.OK(t, s.Server.Call(t.Context(), method, base+path, in, out))
	}
	var issuer, policy struct{ ID string }
	call(http.MethodPost, "/oidc/issuers", map[string]any{
		"name": "cluster", "url": discovery.Issuer, "jwks": json.RawMessage(s.kubectl(t, "get", "--raw", "/openid/v1/jwks")),
	}, &issuer)
	call(http.MethodGet, "/auth/policies/oidcissuers/"+issuer.ID, nil, &policy)
	call(http.MethodPatch, "/auth/policies/"+policy.ID, map[string]any{"policies": []map[string]any{{
		"decision": "allow", "tokenType": "runner", "runnerID": s.Pool.ID,
		"rules": map[string]string{"sub": "system:serviceaccount:" + agents + ":workflow-agent"},
	}}}, nil)
}

// edit replaces texts of a file, given in pairs, that must occur in it.
func edit(t *testing.T, file string, pairs ...string) {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(string(text), pairs[i]) {
			t.Fatalf("%s does not contain %q", file, pairs[i])
		}
	}
	must.OK(t, os.WriteFile(file, []byte(strings.NewReplacer(pairs...).Replace(string(text))), 0o600))
}

func chart(t *testing.T, s site) ([]string, string) {
	image, tag, _ := strings.Cut(s.AgentImage, ":")
	text, err := installation(t).Chart(t.Context(), "agent", agents, fmt.Sprintf(`
replicaCount: 1
image: {repository: %q, tag: %q, pullPolicy: IfNotPresent}
agent: {serviceUrl: %q, token: %q}
`, image, tag, s.Server.URL, s.Pool.Token))
	must.OK(t, err)
	return []string{"-f", "-"}, text
}

// pulumiProgram returns the objects that the Pulumi program registers.
func pulumiProgram(t *testing.T, s site) ([]string, string) {
	if reason, ok := lab.NodeAvailable(); !ok {
		t.Skip(reason)
	}
	config := must.Get(json.Marshal(map[string]string{
		"agentNamespace": agents, "selfHostedAgentsAccessToken": s.Pool.Token, "agentImage": s.AgentImage,
		"agentImagePullPolicy": "IfNotPresent", "agentReplicas": "1", "selfHostedServiceURL": s.Server.URL,
	}))(t)
	text := must.Get(installation(t).Program(t.Context(), string(config)))(t)
	return []string{"-f", "-"}, text
}

func installation(t *testing.T) lab.Installation {
	t.Helper()
	made := must.Get(lab.NewInstallation(t.Context(), os.Stderr))(t)
	return made
}

// install installs agents and waits until all are ready. The returned function removes them as
// docs/kubernetes.md describes.
func (s site) install(t *testing.T, w way) (uninstall func()) {
	t.Helper()
	args, stdin := w.objects(t, s)
	if w.namespace {
		s.kubectl(t, "create", "namespace", agents)
		s.kubectl(t, "label", "namespace", agents, "pod-security.kubernetes.io/enforce=restricted")
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, args := range [][]string{
			{"get", "pods,secrets,replicasets", "--all-namespaces", "-o", "wide"},
			{"logs", "--namespace", agents, "--selector", label, "--tail", "40", "--prefix"},
			{"get", "events", "--namespace", agents},
		} {
			out, err := s.Cluster.Kubectl(afterwards(t), args...)
			t.Logf("kubectl %v: %v\n%s", args, err, out)
		}
		_, _ = s.Cluster.Kubectl(afterwards(t), "delete", "namespace", agents, jobs, "--ignore-not-found", "--wait=true")
	})
	s.kubectlWith(t, stdin, append([]string{"apply", "--server-side"}, args...)...)
	s.ready(t)
	return func() {
		s.kubectl(t, "--namespace", agents, "scale", "deployment", "workflow-agent-pool", "--replicas=0")
		s.kubectl(t, "--namespace", agents, "wait", "--for=delete", "pod", "--selector", label, "--timeout=2m")
		s.kubectlWith(t, stdin, append([]string{"delete", "--timeout=2m"}, args...)...)
		if w.namespace {
			s.kubectl(t, "delete", "namespace", agents)
		}
	}
}

// ready waits until all agents of the newest version are ready.
func (s site) ready(t *testing.T) {
	t.Helper()
	s.kubectl(t, "--namespace", agents, "rollout", "status", "deployment/workflow-agent-pool", "--timeout=3m")
}

// objects lists the objects of the cluster that installations can leave behind.
func (s site) objects(t *testing.T) map[string]bool {
	t.Helper()
	list := s.kubectl(t, "get", "--all-namespaces", "--no-headers", "-o",
		"custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name",
		"namespaces,clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,configmaps,secrets,"+
			"pods,deployments,replicasets,services,poddisruptionbudgets,networkpolicies,persistentvolumes,persistentvolumeclaims")
	found := map[string]bool{}
	for line := range strings.Lines(list) {
		object := strings.Join(strings.Fields(line), " ")
		if !strings.Contains(object, " jobs-") && !strings.Contains(object, " "+servers) { // of another test
			found[object] = true
		}
	}
	return found
}
