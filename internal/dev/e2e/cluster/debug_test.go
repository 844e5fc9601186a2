package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// command returns a command of the newest agent's program with that agent's settings.
func command(ctx context.Context, w *harness.ClusterSite, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, w.Last.Binary, args...)
	cmd.Env = append(slices.Clone(w.Last.Env),
		"PULUMI_AGENT_TOKEN="+w.Last.Token, "PULUMI_AGENT_SERVICE_URL="+w.Last.ServiceURL,
		"PULUMI_AGENT_DEPLOY_TARGET=kubernetes", "PULUMI_AGENT_STATE_DIRECTORY="+w.Dir, "PULUMI_AGENT_HTTP_SERVER_PORT=0")
	for key, value := range w.Last.Settings {
		cmd.Env = append(cmd.Env, "PULUMI_AGENT_"+strings.ToUpper(key)+"="+value)
	}
	return cmd
}

// TestClusterDebugging keeps the pod of a failed job and copies it. In the copy, it repeats the
// command of the job.
func TestClusterDebugging(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	w := harness.StartClusterSite(t)
	must.Get(w.StartClusterAgent(ctx, map[string]string{"debug_pod": "true", "debug_pod_ttl": "1h"}))(t)
	kubectl := func(input string, args ...string) string {
		t.Helper()
		out, err := w.Cluster.KubectlWith(ctx, strings.NewReader(input), append([]string{"--namespace", w.Namespace}, args...)...)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.TrimSpace(out)
	}
	s := w.NewStack(ctx, t, "box", "debug", w.Image, nil)
	d := s.Finish(ctx, t, s.Deploy(ctx, t, "update", w.Repo(ctx, t).URL, "exit 3"))
	if d.Status != "failed" {
		t.Fatalf("the deployment is %+v", d)
	}
	err := harness.Until(ctx, func() (bool, error) { return kubectl("", "get", "secrets", "-o", "name") == "", nil })
	if err != nil {
		t.Fatalf("the Secret remains after the job: %v", err)
	}
	name, kept := strings.CutPrefix(kubectl("", "get", "pods", "-o", "name"), "pod/")
	if !kept || strings.Contains(name, "\n") {
		t.Fatalf("the kept pods are %q", name)
	}
	if out := monitor(ctx, t, w); !strings.Contains(out, name) || !strings.Contains(out, "box/debug") || !strings.Contains(out, "Error") || !strings.Contains(out, "no metrics server") {
		t.Errorf("the monitoring script prints\n%s", out)
	}

	var messages bytes.Buffer
	cmd := command(ctx, w, "debug", "pod", name)
	cmd.Stderr = &messages
	manifest, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &messages)
	}
	kubectl(string(manifest), "apply", "-f", "-")
	kubectl("", "wait", "--for=condition=Ready", "--timeout=2m", "pod/"+name+"-debug")
	inside := func(script string) string {
		return kubectl("", "exec", name+"-debug", "-c", "pulumi-workflow", "--", "sh", "-c", script)
	}
	if got := inside("cat /mnt/pulumi/launch/launch.json; ls /var/run/secrets 2>/dev/null; env | grep -c -i token || true"); got != "{}\n0" {
		t.Errorf("the copy contains %q", got)
	}
	repeat := kubectl("", "get", "pod", name, "-o", "jsonpath={.spec.containers[0].command}")
	var words []string
	must.OK(t, json.Unmarshal([]byte(repeat), &words))
	if got := inside(strings.Join(words, " ") + " 2>&1; echo code $?"); !strings.Contains(got, "nothing was started") || strings.Contains(got, "code 0") {
		t.Errorf("the repeated command of the job prints %q", got)
	}
	now, err := s.Get(ctx, d)
	if err != nil || now != d {
		t.Errorf("the deployment changed from %+v to %+v (%v)", d, now, err)
	}
	kubectl("", "delete", "pod", name+"-debug", "--now")
}

// monitor runs the monitoring script of the examples once.
func monitor(ctx context.Context, t *testing.T, w *harness.ClusterSite) string {
	t.Helper()
	program := must.Get(lab.Kubernetes(ctx, t.Output()))(t)
	dir := t.TempDir()
	script := "#!/bin/sh\nexec " + program + " kubectl --kubeconfig " + w.Cluster.Admin() + ` "$@"` + "\n"
	must.OK(t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte(script), 0o755))
	cmd := exec.CommandContext(ctx, "../../../../examples/kubernetes/monitor.sh", w.Namespace, "0")
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestClusterDoctor runs the doctor in a working namespace, and in one that refuses its pods.
func TestClusterDoctor(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	w := harness.StartClusterSite(t)
	must.Get(w.StartClusterAgent(ctx, nil))(t)
	examine := func() map[string]string {
		t.Helper()
		out, err := command(ctx, w, "doctor", "--json", "--job-image", w.Image).Output()
		var report struct {
			Checks []struct{ Name, Status, Found string }
		}
		if json.Unmarshal(out, &report) != nil {
			t.Fatalf("%v: %s", err, out)
		}
		found := map[string]string{}
		for _, c := range report.Checks {
			found[c.Name] = c.Status + " " + c.Found
		}
		return found
	}
	want := func(found, all map[string]string) {
		t.Helper()
		for name, prefix := range all {
			if !strings.HasPrefix(found[name], prefix) {
				t.Errorf("%s: %q, want %q", name, found[name], prefix)
			}
		}
	}
	want(examine(), map[string]string{
		"cluster": "ok", "rights": "warn", "namespace": "warn", "pod-template": "ok", "admission": "ok", "job": "ok", "job-server": "ok",
	})
	if left, err := w.Objects(ctx); err != nil || len(left) > 0 {
		t.Errorf("the doctor left %q (%v)", left, err)
	}
	must.Get(w.Cluster.Kubectl(ctx, "label", "namespace", w.Namespace, "pod-security.kubernetes.io/enforce=restricted"))(t)
	want(examine(), map[string]string{
		"namespace": "ok", "admission": "fail the cluster refuses the pods of jobs", "job": "skip", "job-server": "skip",
	})
}
