package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/dev/lab"
)

// pauseImage holds a pod's namespaces. Its name does not depend on its content, because the
// configuration of containerd contains it.
const pauseImage = "docker.io/workflowagent/pause:1"

// containerdConfig has no AppArmor, because test machines may lack it, and no negative OOM scores,
// because those need CAP_SYS_RESOURCE. %[1]s is the cluster's directory, %[2]s that of the plugins.
const containerdConfig = `version = 2
root = "%[1]s/containerd/root"
state = "%[1]s/containerd/state"
[grpc]
  address = "%[1]s/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "%[1]s/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + pauseImage + `"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "%[2]s"
    conf_dir = "%[1]s/cni"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "%[1]s/registries"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
`

// plugins returns the directory of the CNI plugins.
func plugins() (string, error) {
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"} {
		if _, err := os.Stat(filepath.Join(dir, "bridge")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("a Kubernetes cluster requires CNI plugins (Debian's containernetworking-plugins)")
}

// startContainerd starts the container runtime and imports the image of sandboxes.
func (c *Cluster) startContainerd(ctx context.Context) error {
	binary, err := find("containerd")
	if err != nil {
		return err
	}
	pluginDir, err := plugins()
	if err != nil {
		return err
	}
	network, err := json.Marshal(map[string]any{
		"cniVersion": "0.4.0", "name": "pods",
		"plugins": []map[string]any{{
			"type": "bridge", "bridge": "pods0", "isGateway": true,
			"ipam": map[string]any{
				"type": "host-local", "dataDir": filepath.Join(c.Dir, "addresses"),
				"ranges": [][]map[string]string{{{"subnet": c.place.Pods().String()}}},
				"routes": []map[string]string{{"dst": "0.0.0.0/0"}},
			},
		}},
	})
	if err != nil {
		return err
	}
	config := filepath.Join(c.Dir, "containerd.toml")
	if err := errors.Join(
		os.MkdirAll(filepath.Join(c.Dir, "cni"), 0o700),
		os.WriteFile(filepath.Join(c.Dir, "cni", "pods.conflist"), network, 0o600),
		os.WriteFile(config, fmt.Appendf(nil, containerdConfig, c.Dir, pluginDir), 0o600),
	); err != nil {
		return err
	}
	if err := c.run(ctx, containerd, []string{binary, "--config", config}); err != nil {
		return err
	}
	if err := c.poll(ctx, containerd, func() error {
		if err := c.runs(ctx, containerd); err != nil {
			return err
		}
		_, err := c.ctr(ctx, nil, "version")
		return err
	}); err != nil {
		return err
	}
	pause, err := lab.NewShellImage(ctx)
	if err != nil {
		return err
	}
	ref, err := c.Import(ctx, pause.Running("/bin/sleep", "2147483647"))
	if err != nil {
		return err
	}
	_, err = c.ctr(ctx, nil, "images", "tag", registry+ref, pauseImage)
	return err
}

// KubeletStart starts the kubelet after [Cluster.KubeletStop], and waits until the node is ready.
func (c *Cluster) KubeletStart(ctx context.Context) error {
	// The kubelet renews its lease four times in the lease's duration.
	lease := max(int(c.options.Unreachable.Seconds())/2, 1)
	config, err := json.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": c.NodeIP.String(), "healthzPort": 0,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": false},
			"x509": map[string]any{"clientCAFile": c.keys.certFile(authorityName)},
		},
		"authorization": map[string]any{"mode": "AlwaysAllow"},
		"cgroupDriver":  "cgroupfs", "cgroupRoot": "/" + c.place.Group(), "failCgroupV1": false,
		"containerRuntimeEndpoint": "unix://" + c.containerd(),
		"podLogsDir":               filepath.Join(c.Dir, "pods"),
		"volumePluginDir":          filepath.Join(c.Dir, kubelet, "volumeplugins"),
		"resolvConf":               "", "clusterDNS": []string{c.NodeIP.String()},
		"makeIPTablesUtilChains": false, "failSwapOn": false,
		"maxPods": 250, "serializeImagePulls": false, "registryPullQPS": 0,
		"kubeAPIQPS": 500, "kubeAPIBurst": 1000, "eventRecordQPS": 500, "eventBurst": 1000,
		"nodeLeaseDurationSeconds": lease, "nodeStatusReportFrequency": "10s", "nodeStatusUpdateFrequency": "5s",
		// Tests share the disk and the memory with the rest of the machine.
		"evictionHard":                map[string]string{"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
	})
	if err != nil {
		return err
	}
	path := filepath.Join(c.Dir, "kubelet.json")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return err
	}
	if err := c.run(ctx, kubelet, []string{
		c.binary, kubelet, "--config=" + path, "--kubeconfig=" + c.kubeconfig(nodeUser),
		"--hostname-override=" + Node, "--node-ip=" + c.NodeIP.String(),
		"--root-dir=" + filepath.Join(c.Dir, kubelet), "--cert-dir=" + filepath.Join(c.Dir, kubelet, "keys"),
	}); err != nil {
		return err
	}
	return c.poll(ctx, "the node", func() error {
		if err := c.runs(ctx, kubelet); err != nil {
			return err
		}
		return c.nodeReady(ctx)
	})
}

// nodeReady returns an error if the node is not ready for pods.
func (c *Cluster) nodeReady(ctx context.Context) error {
	var node struct {
		Spec struct {
			Taints []struct{ Key string } `json:"taints"`
		} `json:"spec"`
		Status struct {
			Conditions []struct{ Type, Status, Message string } `json:"conditions"`
		} `json:"status"`
	}
	if err := c.Call(ctx, http.MethodGet, "/api/v1/nodes/"+Node, nil, &node); err != nil {
		return err
	}
	for _, taint := range node.Spec.Taints {
		if strings.HasPrefix(taint.Key, "node.kubernetes.io/") && taint.Key != "node.kubernetes.io/unschedulable" {
			return fmt.Errorf("the node has the taint %s", taint.Key)
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" && condition.Status == "True" {
			return nil
		} else if condition.Type == "Ready" {
			return errors.New(condition.Message)
		}
	}
	return errors.New("the node has no status yet")
}

// KubeletStop kills the kubelet like a crash. Containers keep running, and the node is marked as
// unreachable after [Options.Unreachable].
func (c *Cluster) KubeletStop(ctx context.Context) error {
	return c.halt(ctx, kubelet, syscall.SIGKILL)
}

// KubeletRestart kills the kubelet and starts it again.
func (c *Cluster) KubeletRestart(ctx context.Context) error {
	if err := c.KubeletStop(ctx); err != nil {
		return err
	}
	return c.KubeletStart(ctx)
}

// APIServerStop kills the API server like a crash.
func (c *Cluster) APIServerStop(ctx context.Context) error {
	return c.halt(ctx, apiServer, syscall.SIGKILL)
}

// Drain marks the node as unschedulable and evicts its pods, as before maintenance. It waits at most
// patience until the pods have ended.
func (c *Cluster) Drain(ctx context.Context, patience time.Duration) error {
	_, err := c.Kubectl(ctx, "drain", Node, "--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout="+patience.String())
	return err
}

// Uncordon makes the node schedulable again, after [Cluster.Drain].
func (c *Cluster) Uncordon(ctx context.Context) error {
	_, err := c.Kubectl(ctx, "uncordon", Node)
	return err
}

// Evict evicts a pod by the eviction API.
func (c *Cluster) Evict(ctx context.Context, namespace, pod string) error {
	eviction := map[string]any{
		"apiVersion": "policy/v1", "kind": "Eviction",
		"metadata": map[string]string{"namespace": namespace, "name": pod},
	}
	return c.Call(ctx, http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods/"+pod+"/eviction", eviction, nil)
}
