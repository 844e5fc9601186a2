package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/lab/cluster/layout"
)

// The names of programs, which are also those of their logs.
const (
	etcd        = "etcd"
	apiServer   = "kube-apiserver"
	controllers = "kube-controller-manager"
	scheduler   = "kube-scheduler"
	kubelet     = "kubelet"
	containerd  = "containerd"
)

// Node is the name of the cluster's only node.
const Node = "node1"

// Users of the cluster's programs.
const (
	adminUser     = "admin"
	adminGroup    = "system:masters"
	schedulerUser = "system:kube-scheduler"
	nodeUser      = "system:node:" + Node
	nodeGroup     = "system:nodes"
)

const pollInterval = 20 * time.Millisecond

// wanted are the controllers that run. The others would only cost time: they serve clouds, attached
// storage and certificates.
var wanted = []string{
	"clusterrole-aggregation-controller", "cronjob-controller", "deployment-controller",
	"disruption-controller", "endpoints-controller", "endpointslice-controller",
	"garbage-collector-controller", "job-controller", "namespace-controller",
	"node-lifecycle-controller", "persistentvolume-binder-controller",
	"persistentvolume-protection-controller", "persistentvolumeclaim-protection-controller",
	"pod-garbage-collector-controller", "replicaset-controller", "resourcequota-controller",
	"root-ca-certificate-publisher-controller", "serviceaccount-controller",
	"serviceaccount-token-controller", "statefulset-controller", "taint-eviction-controller",
	"ttl-after-finished-controller",
}

func (c *Cluster) startPrograms(ctx context.Context) error {
	users := map[string][]string{adminUser: {adminGroup}, schedulerUser: nil, nodeUser: {nodeGroup}}
	for user, groups := range users {
		if _, err := c.Kubeconfig(user, groups...); err != nil {
			return err
		}
	}
	if err := c.poll(ctx, "the first process", func() error {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", layout.Socket(c.Dir))
		if err != nil {
			return err
		}
		return conn.Close()
	}); err != nil {
		return err
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return c.startContainerd(ctx) })
	all.Go(func() error {
		if err := c.APIServerStart(ctx); err != nil {
			return err
		}
		return errors.Join(c.startControllers(ctx), c.startScheduler(ctx))
	})
	return all.Wait()
}

// awaitPods starts the kubelet, and waits until pods can be created.
func (c *Cluster) awaitPods(ctx context.Context) error {
	if err := c.KubeletStart(ctx); err != nil {
		return err
	}
	return c.awaitAccount(ctx, "default")
}

// poll calls try until it returns nil. It fails with try's last error if ctx ends first.
func (c *Cluster) poll(ctx context.Context, what string, try func() error) error {
	var last error
	err := child.Poll(ctx, pollInterval, func() (bool, error) {
		if err := try(); err != nil {
			if ctx.Err() == nil {
				last = err
			}
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w (%w)", what, err, last)
	}
	return nil
}

func (c *Cluster) startEtcd(ctx context.Context) error {
	return c.run(ctx, etcd, []string{
		c.binary, etcd, "--data-dir", filepath.Join(c.Dir, etcd), "--unsafe-no-fsync", "--log-level", "warn",
	})
}

// APIServerStart starts the API server after [Cluster.APIServerStop], and waits until it is ready.
func (c *Cluster) APIServerStart(ctx context.Context) error {
	seconds := strconv.Itoa(int(c.options.Eviction.Seconds()))
	accounts := filepath.Join(c.keys.dir, "accounts")
	err := c.run(ctx, apiServer, []string{
		c.binary, apiServer,
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=0.0.0.0", "--secure-port=443", "--advertise-address=" + c.NodeIP.String(),
		"--tls-cert-file=" + c.keys.certFile("apiserver"), "--tls-private-key-file=" + c.keys.keyFile("apiserver"),
		"--client-ca-file=" + c.keys.certFile(authorityName),
		"--kubelet-client-certificate=" + c.keys.certFile(fileName(adminUser)),
		"--kubelet-client-key=" + c.keys.keyFile(fileName(adminUser)),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + accounts + ".pub", "--service-account-signing-key-file=" + accounts + ".key",
		"--service-cluster-ip-range=" + layout.ServiceRange,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged",
		"--default-not-ready-toleration-seconds=" + seconds, "--default-unreachable-toleration-seconds=" + seconds,
	})
	if err != nil {
		return err
	}
	return c.poll(ctx, "the API server", func() error {
		return c.Call(ctx, http.MethodGet, "/readyz", nil, nil)
	})
}

func (c *Cluster) startControllers(ctx context.Context) error {
	return c.run(ctx, controllers, []string{
		c.binary, controllers,
		"--kubeconfig=" + c.kubeconfig(adminUser), "--kube-api-qps=500", "--kube-api-burst=1000",
		"--controllers=" + strings.Join(wanted, ","),
		"--service-account-private-key-file=" + filepath.Join(c.keys.dir, "accounts.key"),
		"--root-ca-file=" + c.keys.certFile(authorityName),
		"--node-monitor-grace-period=" + c.options.Unreachable.String(), "--node-monitor-period=1s",
		"--leader-elect=false", "--bind-address=127.0.0.1", "--authentication-skip-lookup",
		"--cert-dir=" + filepath.Join(c.Dir, controllers),
	})
}

func (c *Cluster) startScheduler(ctx context.Context) error {
	return c.run(ctx, scheduler, []string{
		c.binary, scheduler,
		"--kubeconfig=" + c.kubeconfig(schedulerUser), "--kube-api-qps=500", "--kube-api-burst=1000",
		"--leader-elect=false", "--bind-address=127.0.0.1", "--authentication-skip-lookup",
		"--cert-dir=" + filepath.Join(c.Dir, scheduler),
	})
}
