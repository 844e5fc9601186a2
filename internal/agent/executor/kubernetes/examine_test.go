package kubernetes

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"workflowagent/internal/agent/executor/kubernetes/podspec"
)

func TestExamine(t *testing.T) {
	s := newSpace(t)
	examine := func(config *rest.Config, agentNamespace string) Facts {
		t.Helper()
		e := s.open(t, Options{Config: config})
		defer e.Close()
		facts, err := e.Examine(t.Context(), agentNamespace)
		if err != nil {
			t.Fatal(err)
		}
		if _, old := facts.TooOld(); old || !strings.HasPrefix(facts.Version, "1.") || facts.Host == "" {
			t.Errorf("the cluster is %+v", facts)
		}
		return facts
	}

	admin := examine(s.admin, "default")
	for _, want := range []string{"get secrets in all namespaces", "create pods in all namespaces", "create pods/exec in namespace " + s.name} {
		if !slices.Contains(admin.Wide, want) {
			t.Errorf("an administrator lacks %s: %q", want, admin.Wide)
		}
	}
	if slices.Contains(admin.Wide, "get secrets in namespace "+s.name) || len(admin.Missing) > 0 || !admin.Readable || admin.PodSecurity != "" {
		t.Errorf("for an administrator: %+v", admin)
	}
	if got := examine(s.agent(), "default"); len(got.Missing) > 0 || len(got.Wide) > 0 || got.Readable {
		t.Errorf("with the installation's Role: %+v", got)
	}
	nobody := rest.CopyConfig(s.admin)
	nobody.Impersonate = rest.ImpersonationConfig{UserName: "nobody", Groups: []string{"system:authenticated"}}
	got := examine(nobody, s.name)
	for _, want := range []string{"create pods in namespace " + s.name, "get pods/log in namespace " + s.name, "list events in namespace " + s.name, "patch secrets in namespace " + s.name} {
		if !slices.Contains(got.Missing, want) {
			t.Errorf("a user without rights misses not %s: %q", want, got.Missing)
		}
	}
	if len(got.Missing) != 10 || len(got.Wide) > 0 {
		t.Errorf("without rights: %+v", got)
	}
	s.kubectl("label namespace " + s.name + " pod-security.kubernetes.io/enforce=restricted")
	if got := examine(s.admin, ""); got.PodSecurity != "restricted" {
		t.Errorf("the namespace enforces %q", got.PodSecurity)
	}
}

func TestExamineWithoutCluster(t *testing.T) {
	s := &space{t: t, name: "jobs", host: host{agentImage: "agent"}}
	e := s.open(t, Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}})
	defer e.Close()
	if _, err := e.Examine(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "the cluster at http://127.0.0.1:1 does not respond") {
		t.Errorf("got %v", err)
	}
}

// TestTryPod checks how the refusals of a real cluster are classified.
func TestTryPod(t *testing.T) {
	for _, tt := range []struct {
		name   string
		object string // to create
		config podspec.Config
		cause  string
		words  string // in the refusal, the warnings or the additions
	}{
		{"accepted", "", podspec.Config{}, "", ""},
		{"full quota", "kind: ResourceQuota\nspec: {hard: {pods: 0}}", podspec.Config{}, "quota", "exceeded quota"},
		{"quota that asks for requests", "kind: ResourceQuota\nspec: {hard: {requests.cpu: 4}}", podspec.Config{}, "quota", "must specify requests.cpu"},
		{"range of limits", "kind: LimitRange\nspec: {limits: [{type: Container, max: {cpu: 1}}]}", podspec.Config{CPUs: "2"}, "limits", "must be less than or equal to cpu limit"},
		{"smallest container", "kind: LimitRange\nspec: {limits: [{type: Container, min: {memory: 1Gi}}]}", podspec.Config{}, "limits", "minimum memory usage per Container"},
		{"default limits", "kind: LimitRange\nspec: {limits: [{type: Container, default: {memory: 1Gi}, defaultRequest: {memory: 64Mi}}]}", podspec.Config{}, "", "admission limits memory of pulumi-workflow to 1Gi"},
		{"no account", "", podspec.Config{ServiceAccount: "missing"}, "account", `serviceaccount "missing" not found`},
		{"enforced standard", "restricted=enforce", podspec.Config{}, "podsecurity", "violates PodSecurity"},
		{"standard that warns", "restricted=warn", podspec.Config{}, "", "would violate PodSecurity"},
		{"no namespace", "no namespace", podspec.Config{}, "namespace", "not found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSpace(t)
			if level, is := strings.CutPrefix(tt.object, "restricted="); is {
				s.kubectl("label namespace " + s.name + " pod-security.kubernetes.io/" + level + "=restricted")
			} else if strings.HasPrefix(tt.object, "kind:") {
				text := "apiVersion: v1\nmetadata: {name: a, namespace: " + s.name + "}\n" + tt.object
				if _, err := s.cluster.KubectlWith(t.Context(), strings.NewReader(text), "create", "-f", "-"); err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(tt.object, "kind: ResourceQuota") {
					s.kubectl("-n " + s.name + " wait resourcequota/a --for=jsonpath={.status.hard} --timeout=5m") // until it applies
				}
			}
			real := s.name
			if tt.object == "no namespace" {
				s.name = "missing"
			}
			e := s.open(t, Options{Pods: s.builder(tt.config)})
			s.name = real
			defer e.Close()
			spec := s.spec()
			spec.JobID, spec.Epoch, spec.Owner = "try", 1, "owner"
			got, err := e.TryPod(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			all := got.Words + strings.Join(got.Warnings, " ") + strings.Join(got.Changed, " ")
			if got.Cause != tt.cause || !strings.Contains(all, tt.words) {
				t.Errorf("the verdict is %+v", got)
			}
			if left := s.objects(podspec.Name("owner", "try", 1)); len(left) > 0 {
				t.Errorf("the dry run created %q", left)
			}
		})
	}
}

func (s *space) kubectl(line string) {
	s.t.Helper()
	if _, err := s.cluster.Kubectl(s.t.Context(), strings.Fields(line)...); err != nil {
		s.t.Fatal(err)
	}
}
