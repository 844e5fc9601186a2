package install

import (
	"context"
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

const servers = "workflow-server"

// TestClusterServer installs the server's chart with SQLite on a volume, and replaces its pod.
func TestClusterServer(t *testing.T) {
	t.Parallel()
	bin, tools := harness.Programs(t)
	s := site{ClusterSite: &harness.ClusterSite{Cluster: harness.NeedCluster(t), Site: &harness.Site{Tools: tools}}}
	ref := must.Get(s.Cluster.Import(t.Context(), lab.NewServerImage(bin)))(t)
	must.OK(t, s.Cluster.CreateNamespace(t.Context(), servers, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}))
	dir := s.volume(t)
	image, tag, _ := strings.Cut(ref, ":")
	text, err := installation(t).Chart(t.Context(), "server", servers, fmt.Sprintf(
		"image: {repository: %q, tag: %q}\nexternalUrl: http://workflow-server.example.com\npersistence: {storageClassName: %s, size: 1Gi}\n", image, tag, servers,
	))
	must.OK(t, err)
	s.kubectlWith(t, text, "apply", "--server-side", "-f", "-")
	token := s.serverToken(t, dir)
	const stacks = "/api/stacks/"
	var user struct {
		Organizations []struct{ GitHubLogin string }
	}
	s.ask(t, token, http.MethodGet, "/api/user", "", &user)
	stack := user.Organizations[0].GitHubLogin + "/box"
	s.ask(t, token, http.MethodPost, stacks+stack, `{"stackName":"dev"}`, nil)

	s.kubectl(t, "--namespace", servers, "delete", "pod", servers+"-0")
	s.ask(t, s.serverToken(t, dir), http.MethodGet, stacks+stack+"/dev", "", nil)
}

// volume creates a volume for the server, as a provisioner of a cluster would, and returns its
// directory.
func (s site) volume(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	const serverUser = 65532
	must.OK(t, os.Chown(dir, serverUser, serverUser))
	volume := map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolume", "metadata": map[string]any{"name": servers},
		"spec": map[string]any{
			"capacity": map[string]string{"storage": "1Gi"}, "accessModes": []string{"ReadWriteOnce"},
			"storageClassName": servers, "hostPath": map[string]string{"path": dir},
		},
	}
	must.OK(t, s.Cluster.Call(t.Context(), http.MethodPost, "/api/v1/persistentvolumes", volume, nil))
	t.Cleanup(func() {
		if t.Failed() {
			for _, args := range [][]string{{"get", "pods,pvc,pv,events"}, {"logs", servers + "-0", "--tail", "40"}} {
				out, err := s.Cluster.Kubectl(afterwards(t), append(args, "--namespace", servers)...)
				t.Logf("kubectl %v: %v\n%s", args, err, out)
			}
		}
		// The volume's directory is in use until the pod is gone.
		for _, args := range [][]string{{"delete", "namespace", servers}, {"delete", "pv", servers}} {
			if _, err := s.Cluster.Kubectl(context.WithoutCancel(t.Context()), append(args, "--timeout=2m")...); err != nil {
				t.Error(err)
			}
		}
	})
	return dir
}

// serverToken waits until the server is ready and returns its administrator's token.
func (s site) serverToken(t *testing.T, dir string) string {
	t.Helper()
	s.kubectl(t, "--namespace", servers, "rollout", "status", "statefulset/"+servers, "--timeout=3m")
	text := must.Get(os.ReadFile(filepath.Join(dir, "data", "admin-token")))(t)
	return strings.TrimSpace(string(text))
}

// ask calls the server's API at the address of its pod, because the lab has no Services.
func (s site) ask(t *testing.T, token, method, path, body string, out any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	address := s.kubectl(t, "--namespace", servers, "get", "pod", servers+"-0", "-o", "jsonpath={.status.podIP}")
	req := must.Get(http.NewRequestWithContext(ctx, method, "http://"+address+":8800"+path, strings.NewReader(body)))(t)
	req.Header.Set("Authorization", "token "+token)
	resp := must.Get(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s", method, path, resp.Status)
	}
	if out != nil {
		must.OK(t, json.NewDecoder(resp.Body).Decode(out))
	}
}
