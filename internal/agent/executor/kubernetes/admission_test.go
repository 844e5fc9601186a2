package kubernetes

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"workflowagent/internal/agent/executor/kubernetes/podspec"
)

// TestClusterAcceptsPods checks, without starting them, that a cluster accepts the pods of published
// and other templates, and that it accepts those without root where it enforces the Pod Security
// Standard "restricted".
func TestClusterAcceptsPods(t *testing.T) {
	s := newSpace(t)
	restricted := s.name + "-restricted"
	s.create("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: restricted, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}})
	t.Cleanup(func() {
		_ = s.client.rest.Delete().Resource("namespaces").Name(restricted).Do(t.Context()).Error()
	})
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("podspec", "testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, tt := range []struct {
		name     string
		config   podspec.Config
		rootless bool
	}{
		{"plain", podspec.Config{}, false},
		{"settings", podspec.Config{PullPolicy: "Always", CPUs: "1.5", Memory: "4", DebugPod: true}, false},
		{"complete example", podspec.Config{Template: read("complete-example.json")}, false},
		{"mounts", podspec.Config{Template: read("mounts.yaml")}, false},
		{"non-root", podspec.Config{Template: read("non-root.yaml")}, true},
		{"non-root image", podspec.Config{Template: "spec: {securityContext: {runAsNonRoot: true}}"}, true},
		{"non-root container", podspec.Config{Template: "spec: {containers: [{name: pulumi-workflow, securityContext: {runAsNonRoot: true, runAsUser: 1000}}]}"}, true},
		{"privileged", podspec.Config{Template: "spec: {containers: [{name: pulumi-workflow, securityContext: {privileged: true}}]}"}, false},
		{"native sidecar", podspec.Config{Template: "spec: {initContainers: [{name: proxy, image: i, restartPolicy: Always, startupProbe: {tcpSocket: {port: 80}}}]}"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for namespace, accepted := range map[string]bool{s.name: true, restricted: tt.rootless} {
				c := tt.config
				c.Namespace, c.AgentImage = namespace, "lab/agent:1"
				b, err := podspec.New(podspec.Options{Config: c})
				if err != nil {
					t.Fatal(err)
				}
				pod, err := b.Pod(s.spec())
				if err != nil {
					t.Fatal(err)
				}
				err = s.client.rest.Post().Namespace(namespace).Resource("pods").
					Param("dryRun", "All").Param("fieldValidation", "Strict").Body(pod).Do(t.Context()).Error()
				if (err == nil) != accepted {
					t.Errorf("in namespace %s: %v, want accepted: %t", namespace, err, accepted)
				}
			}
		})
	}
}
