package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"workflowagent/internal/dev/lab/jsoncall"
)

// callPatience is the time limit for a request to the API server.
const callPatience = 30 * time.Second

// connect sets the addresses of the cluster, and the clients of its API server and its first process.
func (c *Cluster) connect() error {
	c.HostIP, c.NodeIP = c.place.HostIP(), c.place.NodeIP()
	c.URL = "https://" + c.NodeIP.String()
	c.control = controlClient(c.Dir)
	name := fileName(adminUser)
	if _, err := os.Stat(c.keys.certFile(name)); err != nil {
		if err := c.keys.issueUser(name, adminUser, []string{adminGroup}); err != nil {
			return err
		}
	}
	pair, err := tls.LoadX509KeyPair(c.keys.certFile(name), c.keys.keyFile(name))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.keys.cert)
	c.api = &http.Client{
		Timeout:   callPatience,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS13}},
	}
	return nil
}

// fileName returns a user's name as a file name.
func fileName(user string) string { return url.PathEscape(user) }

func (c *Cluster) kubeconfig(user string) string {
	return filepath.Join(c.Dir, "users", fileName(user)+".kubeconfig")
}

// Admin returns the path of the administrator's kubeconfig.
func (c *Cluster) Admin() string { return c.kubeconfig(adminUser) }

// Kubeconfig writes a kubeconfig for a user with a certificate of the cluster, and returns its path.
// The user may do what RBAC grants the user and the groups; group system:masters may do everything.
func (c *Cluster) Kubeconfig(user string, groups ...string) (string, error) {
	name := fileName(user)
	if err := c.keys.issueUser(name, user, groups); err != nil {
		return "", err
	}
	return c.writeKubeconfig(user, map[string]any{
		"client-certificate": c.keys.certFile(name), "client-key": c.keys.keyFile(name),
	})
}

// AccountKubeconfig writes a kubeconfig with a token of a service account, and returns its path. The
// token is valid for a day.
func (c *Cluster) AccountKubeconfig(ctx context.Context, namespace, account string) (string, error) {
	const day = 24 * 60 * 60
	var out struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	in := map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"spec": map[string]any{"expirationSeconds": day},
	}
	path := "/api/v1/namespaces/" + namespace + "/serviceaccounts/" + account + "/token"
	if err := c.Call(ctx, http.MethodPost, path, in, &out); err != nil {
		return "", err
	}
	return c.writeKubeconfig("system:serviceaccount:"+namespace+":"+account, map[string]any{"token": out.Status.Token})
}

// writeKubeconfig writes the file as JSON, which is also YAML.
func (c *Cluster) writeKubeconfig(user string, credentials map[string]any) (string, error) {
	config, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"clusters": []map[string]any{{"name": "test", "cluster": map[string]any{
			"server": c.URL, "certificate-authority": c.keys.certFile(authorityName),
		}}},
		"users":    []map[string]any{{"name": user, "user": credentials}},
		"contexts": []map[string]any{{"name": "test", "context": map[string]any{"cluster": "test", "user": user}}},
	})
	if err != nil {
		return "", err
	}
	path := c.kubeconfig(user)
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return "", fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return path, nil
}

// Call sends a request to the API server as the administrator. Unless they are nil, it encodes in as
// the JSON body, which is a merge patch for PATCH, and decodes the response into out. A status other
// than 2xx is an error.
func (c *Cluster) Call(ctx context.Context, method, path string, in, out any) error {
	var header map[string]string
	if method == http.MethodPatch {
		header = map[string]string{"Content-Type": "application/merge-patch+json"}
	}
	return jsoncall.Do(ctx, c.api, method, c.URL+path, header, in, out)
}

// Kubectl runs kubectl as the administrator and returns its standard output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.KubectlWith(ctx, nil, args...)
}

// KubectlWith is like [Cluster.Kubectl], with a standard input.
func (c *Cluster) KubectlWith(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.binary, append([]string{"kubectl", "--kubeconfig", c.Admin()}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+c.Dir)
	cmd.Stdin = stdin
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(problems.Bytes()))
	}
	return out.String(), nil
}
