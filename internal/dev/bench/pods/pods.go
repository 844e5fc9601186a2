// Package pods gives the benchmarks a real Kubernetes: an image for their jobs, a connection for the
// agent that counts its calls, and the same work in pods without the product as a baseline.
package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"workflowagent/internal/dev/bench/proxy"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/cluster"
)

// Paths in the jobs' image.
const (
	// Stamp is the program stamp. It is also the image's pulumi.
	Stamp = "/usr/bin/stamp"
	// runnerCopy has the size of the program that the product copies into each pod.
	runnerCopy = "/opt/runner"
)

const namespace = "bench"

// Options configure a [Place].
type Options struct {
	Bin   string // directory of the product's programs
	Stamp string // path of the program stamp
	Dir   string // directory for files
}

// Place is a cluster with a namespace for jobs.
type Place struct {
	// Host is this machine's address for pods.
	Host string
	// Image is the image of jobs, in which pulumi is a stub. It contains a project file.
	Image string

	cluster    *cluster.Cluster
	agentImage string
	api        *http.Client // without a timeout, for streams
	proxy      *proxy.Proxy
	kubeconfig string
	calls      atomic.Int64
	number     atomic.Int64 // of the newest bare pod
}

// Start starts a cluster. The caller must close the place.
func Start(ctx context.Context, o Options) (_ *Place, err error) {
	c, err := cluster.Need(ctx, cluster.Options{})
	if err != nil {
		return nil, err
	}
	p := &Place{cluster: c, Host: c.HostIP.String(), kubeconfig: filepath.Join(o.Dir, "kubeconfig")}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if err := p.importImages(ctx, o); err != nil {
		return nil, err
	}
	if err := c.CreateNamespace(ctx, namespace, nil); err != nil {
		return nil, err
	}
	return p, p.connect()
}

func (p *Place) importImages(ctx context.Context, o Options) error {
	project := filepath.Join(o.Dir, "Pulumi.yaml")
	if err := os.WriteFile(project, []byte("name: bench\nruntime: yaml\n"), 0o644); err != nil {
		return fmt.Errorf("writing the project file: %w", err)
	}
	shell, err := lab.NewShellImage(ctx)
	if err != nil {
		return err
	}
	image := shell.With(map[string]string{
		Stamp: o.Stamp, "/pulumi/bin/pulumi": o.Stamp, "/Pulumi.yaml": project, runnerCopy: filepath.Join(o.Bin, "workflow-runner"),
	})
	if p.Image, err = p.cluster.Import(ctx, image); err != nil {
		return err
	}
	p.agentImage, err = p.cluster.Import(ctx, lab.NewAgentImage(o.Bin))
	return err
}

// connect starts the proxy through which the agent calls the cluster.
func (p *Place) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", p.cluster.Admin())
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	target, err := url.Parse(p.cluster.URL)
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	p.api = &http.Client{Transport: transport}
	p.proxy, err = proxy.StartWith(transport, func(*http.Request) *url.URL {
		p.calls.Add(1)
		return target
	})
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "bench",
		"clusters": []map[string]any{{"name": "bench", "cluster": map[string]any{"server": p.proxy.URL}}},
		"contexts": []map[string]any{{"name": "bench", "context": map[string]any{"cluster": "bench", "user": ""}}},
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.kubeconfig, text, 0o600); err != nil {
		return fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return nil
}

// Close stops the cluster.
func (p *Place) Close() error {
	if p.proxy != nil {
		p.proxy.Close()
	}
	if p.api != nil {
		p.api.CloseIdleConnections()
	}
	return p.cluster.Close()
}

// AgentSettings returns the settings of an agent that runs its jobs in the place.
func (p *Place) AgentSettings() map[string]string {
	return map[string]string{"kubernetes_namespace": namespace, "image": p.agentImage, "image_pull_policy": "IfNotPresent"}
}

// AgentEnv returns the environment of such an agent.
func (p *Place) AgentEnv() []string { return []string{"KUBECONFIG=" + p.kubeconfig} }

// Calls returns the number of calls that the agent has made.
func (p *Place) Calls() int64 { return p.calls.Load() }

// Pods returns the number of pods in the namespace.
func (p *Place) Pods(ctx context.Context) (int, error) {
	found, err := p.cluster.Objects(ctx, namespace, "pods")
	return len(found), err
}

func (p *Place) call(ctx context.Context, method, path string, in, out any) error {
	return p.cluster.Call(ctx, method, "/api/v1/namespaces/"+namespace+"/"+path, in, out)
}

// stream returns the body of a response that can last long.
func (p *Place) stream(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.cluster.URL+"/api/v1/namespaces/"+namespace+"/"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := p.api.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<12))
		_ = resp.Body.Close()
		return nil, fmt.Errorf("GET %s: %s: %s", path, resp.Status, text)
	}
	return resp.Body, nil
}
