package kubernetes

import (
	"os"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/executortest/program"
)

// agent returns the connection of a service account with the rights of the installation's Role.
func (s *space) agent() *rest.Config {
	s.t.Helper()
	t := s.t
	role, err := os.ReadFile("../../../../packaging/kubernetes/base/role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(role), "namespace: workflow-agent-jobs", "namespace: "+s.name)
	text = strings.ReplaceAll(text, "namespace: workflow-agent\n", "namespace: "+s.name+"\n")
	if _, err := s.cluster.Kubectl(t.Context(), "create", "serviceaccount", "workflow-agent", "--namespace", s.name); err != nil {
		t.Fatal(err)
	}
	if _, err := s.cluster.KubectlWith(t.Context(), strings.NewReader(text), "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	path, err := s.cluster.AccountKubeconfig(t.Context(), s.name, "workflow-agent")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// TestRights runs a job with exactly the rights of the installation's Role.
func TestRights(t *testing.T) {
	s := newSpace(t)
	e := s.open(t, Options{Config: s.agent()})
	defer e.Close()
	if err := e.Check(t.Context()); err != nil {
		t.Fatalf("Check: %v", err)
	}
	spec := s.spec()
	spec.JobID, spec.Epoch, spec.Owner = "rights", 1, "owner"
	h, err := e.Prepare(t.Context(), spec, func(string) {})
	if err != nil {
		t.Fatalf("Prepare: %v", err)
	}
	if err := e.Start(t.Context(), h, launchDocument(t, program.Action{WriteFile: "spool/step-0001.state"}, program.Action{Forever: true})); err != nil {
		t.Fatalf("Start: %v", err)
	}
	if err := e.AwaitStart(t.Context(), h, func(string) {}); err != nil {
		t.Fatalf("AwaitStart: %v", err)
	}
	if listed, err := e.List(t.Context(), "owner"); err != nil || len(listed) != 1 {
		t.Errorf("List: %d jobs, %v", len(listed), err)
	}
	if err := e.Stop(t.Context(), h, executor.StopKill); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if exit, err := e.Wait(t.Context(), h); err != nil || exit.Signal != "SIGKILL" {
		t.Errorf("Wait: %+v, %v", exit, err)
	}
	if err := e.CopySpool(t.Context(), h, t.TempDir()); err != nil {
		t.Errorf("CopySpool: %v", err)
	}
	if err := e.Remove(t.Context(), h); err != nil {
		t.Errorf("Remove: %v", err)
	}
	if left := s.objects(jobOf(t, h).Name); len(left) > 0 {
		t.Errorf("leftovers: %q", left)
	}
}
