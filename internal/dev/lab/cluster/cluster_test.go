package cluster

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

var shared struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerVariable); dir != "" {
		ownCluster(dir)
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

// need returns the cluster of the package's tests.
func need(t *testing.T) *Cluster {
	t.Helper()
	if reason, ok := Available(); !ok {
		t.Skip(reason)
	}
	shared.once.Do(func() {
		start := time.Now()
		shared.cluster, shared.err = Need(context.Background(), Options{})
		t.Logf("the cluster was ready after %s", time.Since(start))
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// space creates a namespace for a test.
func space(t *testing.T, c *Cluster, labels ...string) string {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())) + fmt.Sprintf("-%d", time.Now().UnixNano()%1e9)
	kubectl(t, c, "create", "namespace", name)
	for _, label := range labels {
		kubectl(t, c, "label", "namespace", name, label)
	}
	t.Cleanup(func() {
		if _, err := c.Kubectl(context.Background(), "delete", "namespace", name, "--wait=false"); err != nil {
			t.Error(err)
		}
	})
	return name
}

func kubectl(t *testing.T, c *Cluster, args ...string) string {
	t.Helper()
	out := must.Get(c.Kubectl(t.Context(), args...))(t)
	return strings.TrimSpace(out)
}

func shell(t *testing.T, c *Cluster) string {
	t.Helper()
	image := must.Get(lab.NewShellImage(t.Context()))(t)
	ref := must.Get(c.Import(t.Context(), image))(t)
	return ref
}

// createPod creates a pod whose only container, "main", runs a shell script. fields are further
// fields of the container, as YAML on one line.
func createPod(t *testing.T, c *Cluster, namespace, name, image, script string, fields ...string) {
	t.Helper()
	pod := fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {restartPolicy: Never, terminationGracePeriodSeconds: 1,
  containers: [{name: main, image: %q, command: [/bin/sh, -c, %q], %s}]}}`, name, image, script, strings.Join(fields, ", "))
	must.Get(c.KubectlWith(t.Context(), strings.NewReader(pod), "create", "--namespace", namespace, "-f", "-"))(t)
}

// end waits for the end of the pod's container, and returns the reason and the exit code.
func end(t *testing.T, c *Cluster, namespace, name string) string {
	t.Helper()
	const path = "{.status.containerStatuses[0].state.terminated"
	kubectl(t, c, "wait", "--namespace", namespace, "--timeout=120s", "--for=jsonpath="+path+".reason}", "pod/"+name)
	return kubectl(t, c, "get", "pod", name, "--namespace", namespace, "-o", "jsonpath="+path+".reason} "+path+".exitCode}")
}

func TestPod(t *testing.T) {
	t.Parallel()
	c := need(t)
	namespace := space(t, c)
	createPod(t, c, namespace, "ends", shell(t, c), "echo one; echo two; exit 7")
	if got := end(t, c, namespace, "ends"); got != "Error 7" {
		t.Errorf("the container ended with %s, want Error 7", got)
	}
	if got := kubectl(t, c, "logs", "ends", "--namespace", namespace); got != "one\ntwo" {
		t.Errorf("the log is %q", got)
	}
}

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	c := need(t)
	namespace := space(t, c)
	createPod(t, c, namespace, "grows", shell(t, c), "x=x; while :; do x=$x$x; done", "resources: {limits: {memory: 32Mi}}")
	if got := end(t, c, namespace, "grows"); got != "OOMKilled 137" {
		t.Errorf("the container ended with %s, want OOMKilled 137", got)
	}
}

// TestNetwork tests that a pod reaches a listener of this machine and the API server, and that this
// machine reaches a pod.
func TestNetwork(t *testing.T) {
	t.Parallel()
	c := need(t)
	listener := must.Get(net.Listen("tcp", net.JoinHostPort(c.HostIP.String(), "0")))(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	server.Listener = listener
	server.Start()
	defer server.Close()
	namespace := space(t, c)
	createPod(t, c, namespace, "asks", shell(t, c), "wget -q -O - "+server.URL+
		` && echo | nc -w 10 "$KUBERNETES_SERVICE_HOST" "$KUBERNETES_SERVICE_PORT" >/dev/null && echo " api"; exec httpd -f -p 8080 -h /etc`)
	kubectl(t, c, "wait", "--namespace", namespace, "--timeout=60s", "--for=condition=Ready", "pod/asks")
	address := kubectl(t, c, "get", "pod", "asks", "--namespace", namespace, "-o", "jsonpath={.status.podIP}")
	if err := c.poll(t.Context(), "the pod's server", func() error {
		resp, err := http.Get("http://" + address + ":8080/passwd")
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	if got := kubectl(t, c, "logs", "asks", "--namespace", namespace); got != "hello api" {
		t.Errorf("the pod received %q", got)
	}
}

// TestRestarts tests that a pod survives its kubelet and the API server.
func TestRestarts(t *testing.T) {
	c := need(t)
	namespace := space(t, c)
	createPod(t, c, namespace, "survives", shell(t, c), "echo begin; until [ -e /tmp/go ]; do sleep 0.1; done; echo end; exit 3")
	kubectl(t, c, "wait", "--namespace", namespace, "--timeout=60s", "--for=condition=Ready", "pod/survives")
	must.OK(t, c.KubeletRestart(t.Context()))
	must.OK(t, c.APIServerStop(t.Context()))
	if err := c.Call(t.Context(), http.MethodGet, "/readyz", nil, nil); err == nil {
		t.Error("the API server responds after its end")
	}
	must.OK(t, c.APIServerStart(t.Context()))
	// A kubelet that has just started refuses to run a command until it has listed its pods.
	must.OK(t, c.poll(t.Context(), "the kubelet's list of pods", func() error {
		_, err := c.Kubectl(t.Context(), "exec", "survives", "--namespace", namespace, "--", "touch", "/tmp/go")
		return err
	}))
	if got := end(t, c, namespace, "survives"); got != "Error 3" {
		t.Errorf("the container ended with %s, want Error 3", got)
	}
	if got := kubectl(t, c, "logs", "survives", "--namespace", namespace); got != "begin\nend" {
		t.Errorf("the log is %q", got)
	}
}

func TestDrain(t *testing.T) {
	c := need(t)
	namespace := space(t, c)
	image := shell(t, c)
	for _, name := range []string{"evicted", "drained"} {
		createPod(t, c, namespace, name, image, "trap 'exit 0' TERM; while :; do sleep 0.1; done")
	}
	kubectl(t, c, "wait", "--namespace", namespace, "--timeout=60s", "--for=condition=Ready", "pod/evicted", "pod/drained")
	must.OK(t, c.Evict(t.Context(), namespace, "evicted"))
	kubectl(t, c, "wait", "--namespace", namespace, "--timeout=60s", "--for=delete", "pod/evicted")
	must.OK(t, c.Drain(t.Context(), time.Minute))
	defer func() {
		if err := c.Uncordon(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	if got := kubectl(t, c, "get", "pods", "--namespace", namespace, "-o", "name"); got != "" {
		t.Errorf("a drained node has the pods %s", got)
	}
	if got := kubectl(t, c, "get", "node", Node, "-o", "jsonpath={.spec.unschedulable}"); got != "true" {
		t.Error("a drained node is schedulable")
	}
}

// TestRights tests users, service accounts, and the admission of pods.
func TestRights(t *testing.T) {
	t.Parallel()
	c := need(t)
	namespace := space(t, c, "pod-security.kubernetes.io/enforce=restricted")
	kubectl(t, c, "create", "serviceaccount", "reader", "--namespace", namespace)
	kubectl(t, c, "create", "role", "reads", "--namespace", namespace, "--verb=list", "--resource=pods")
	kubectl(t, c, "create", "rolebinding", "reads", "--namespace", namespace, "--role=reads", "--serviceaccount="+namespace+":reader", "--user=anna")
	anna := must.Get(c.Kubeconfig("anna", "readers"))(t)
	account := must.Get(c.AccountKubeconfig(t.Context(), namespace, "reader"))(t)
	for _, config := range []string{anna, account} {
		kubectl(t, c, "--kubeconfig", config, "get", "pods", "--namespace", namespace)
		if out, err := c.Kubectl(t.Context(), "--kubeconfig", config, "get", "secrets", "--namespace", namespace); err == nil || !strings.Contains(err.Error(), "Forbidden") {
			t.Errorf("%s lists secrets: %v\n%s", config, err, out)
		}
	}
	// The shell image runs as root, which this namespace refuses.
	pod := fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: root}, spec: {containers: [{name: main, image: %q}]}}`, shell(t, c))
	out, err := c.KubectlWith(t.Context(), strings.NewReader(pod), "create", "--namespace", namespace, "-f", "-")
	if err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
		t.Errorf("a pod with all rights: %v\n%s", err, out)
	}
}
