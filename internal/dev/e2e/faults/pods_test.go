package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/cluster"
	"workflowagent/internal/dev/must"
)

// stubInPods is the pulumi of jobs in pods. It can be made to run until it is interrupted.
const stubInPods = harness.StubVersion + `trap 'wget -q -O /dev/null "$LEDGER_URL/mark/interrupted"; exit 1' INT
` + markPulumi + `
wget -q -O /dev/null "$LEDGER_URL/busy" &
wait $!
`

// pods is what a row in a cluster needs besides its place.
type pods struct {
	*harness.ClusterSite
	api    *apiProxy // between the agent and the cluster
	ledger *ledger
}

// sharedCluster is the place of jobs in pods. Each row has a separate namespace.
func sharedCluster(t *testing.T) place {
	t.Helper()
	c := harness.NeedCluster(t)
	image := must.Get(lab.NewStubImage(t.Context(), stubInPods))(t)
	return place{name: "kubernetes", own: func(t *testing.T, row faultRow) place {
		return inPods(t, row, c, image)
	}}
}

func inPods(t *testing.T, row faultRow, c *cluster.Cluster, image *lab.Image) place {
	t.Helper()
	w := harness.StartSiteIn(t, c, image, row.server...)
	var registry *lab.Registry
	if row.pulled {
		registry, w.Image = registryOfPods(t, c, image)
	}
	p := &pods{ClusterSite: w, api: startAPIProxy(t, c, w.Dir), ledger: newLedger(t, c.HostIP.String())}
	at := place{
		name: "kubernetes", image: w.Image, pods: p, registry: registry,
		variables: map[string]string{"LEDGER_URL": p.ledger.URL},
		settings:  w.AgentSettings(),
		env:       []string{"KUBECONFIG=" + p.api.kubeconfig},
		mark: func(_ *arena, word string) string {
			return strings.Replace(markPulumi, "pulumi", word, 1)
		},
		marks:  func(*arena) map[string]int { return p.ledger.counts() },
		gate:   func(*arena) string { return waitAtGate },
		open:   func(*arena) error { p.ledger.letGo(); return nil },
		runner: func(*arena) []int { return p.runners(t) },
		left:   func(*arena) ([]string, error) { return p.Objects(context.Background()) },
		start:  func(*testing.T, ...string) *harness.Site { return w.Site },
	}
	if row.pod != "" {
		at.env = append(at.env, "PULUMI_AGENT_POD_TEMPLATE="+strings.ReplaceAll(row.pod, "NAMESPACE", w.Namespace))
	}
	return at
}

// registryOfPods starts a registry with an image that is not on the node.
func registryOfPods(t *testing.T, c *cluster.Cluster, image *lab.Image) (r *lab.Registry, ref string) {
	t.Helper()
	r, err := lab.StartRegistry(t.Context(), lab.RegistryOptions{Address: c.HostIP.String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	must.OK(t, c.PlainRegistry(r.Host))
	unique := filepath.Join(t.TempDir(), "unique")
	harness.Write(t, unique, []byte(time.Now().String()), 0o644)
	ref, err = r.Add(t.Context(), image.With(map[string]string{"/unique": unique}), "team/stub", "1")
	if err != nil {
		t.Fatal(err)
	}
	return r, ref
}

// pod is a pod of a job.
type pod struct {
	Metadata struct {
		Name              string            `json:"name"`
		UID               string            `json:"uid"`
		Labels            map[string]string `json:"labels"`
		Annotations       map[string]string `json:"annotations"`
		DeletionTimestamp string            `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec   map[string]any `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

func (p *pods) path(rest string) string { return "/api/v1/namespaces/" + p.Namespace + "/" + rest }

func (p *pods) list(t *testing.T) []pod {
	t.Helper()
	var found struct {
		Items []pod `json:"items"`
	}
	must.OK(t, p.Cluster.Call(t.Context(), http.MethodGet, p.path("pods"), nil, &found))
	return found.Items
}

// one waits for the job's pod and returns it.
func (a *arena) onePod() pod {
	a.t.Helper()
	var found []pod
	a.eventually(patience, "the job has a pod", func() (bool, error) {
		found = a.place.pods.list(a.t)
		return len(found) > 0, nil
	})
	if len(found) != 1 {
		a.t.Fatalf("the job has %d pods", len(found))
	}
	return found[0]
}

// runners finds the runners of the namespace's pods among this machine's processes.
func (p *pods) runners(t *testing.T) []int {
	t.Helper()
	var pids []int
	for _, pod := range p.list(t) {
		for _, pid := range podProcesses(pod) {
			args, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
			if bytes.Contains(args, []byte("workflow-runner\x00run\x00")) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// podProcesses lists the processes in the pod's control groups.
func podProcesses(of pod) []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/cgroup") // a process may end meanwhile
	for _, file := range files {
		groups, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(groups, []byte(of.Metadata.UID)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// copyPod creates a second pod with the labels and the specification of a job's pod.
func (p *pods) copyPod(t *testing.T, of pod, name string) {
	t.Helper()
	spec := maps.Clone(of.Spec)
	delete(spec, "nodeName")
	twin := map[string]any{
		"apiVersion": "v1", "kind": "Pod", "spec": spec,
		"metadata": map[string]any{"name": name, "labels": of.Metadata.Labels, "annotations": of.Metadata.Annotations},
	}
	must.OK(t, p.Cluster.Call(t.Context(), http.MethodPost, p.path("pods"), twin, nil))
}

func (p *pods) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out := must.Get(p.Cluster.Kubectl(t.Context(), append(args, "--namespace", p.Namespace)...))(t)
	return out
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	data := must.Get(json.Marshal(v))(t)
	return data
}
