package podspec

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/workflow"
)

var update = flag.Bool("update", false, "write the golden files")

func testOptions() Options {
	return Options{Config: Config{Namespace: "jobs", AgentImage: "registry.example.com/agent:v1.2.3"}}
}

func testSpec() executor.Spec {
	return executor.Spec{
		JobID: "8f1c0c9a-6a0f-4e8e-9f0e-0d5b7a8f4f10", Epoch: 2, Owner: "agent-1",
		Labels:  map[string]string{"deployment_id": "d-1", "stack": "acme/shop/prod"},
		Image:   &workflow.Image{Reference: "pulumi/pulumi:3"},
		Timeout: time.Hour, Patience: 15 * time.Minute,
	}
}

func build(t *testing.T, c Options, spec executor.Spec) *corev1.Pod {
	t.Helper()
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	pod, err := b.Pod(spec)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func readTemplate(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestGolden compares whole pods with files, which -update writes.
func TestGolden(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*Options, *executor.Spec)
	}{
		{"plain", func(*Options, *executor.Spec) {}},
		{"settings", func(c *Options, _ *executor.Spec) {
			c.PullPolicy, c.ServiceAccount, c.CPUs, c.Memory, c.DebugPod = "Always", "deployer", "1.5", "4", true
		}},
		{"pull-secret", func(_ *Options, s *executor.Spec) {
			s.Image = &workflow.Image{Reference: "registry.example.com/team/image:1", Credentials: &workflow.ImageCredentials{Username: "robot", Password: "s3cret-password"}}
			s.Timeout = 0
		}},
		{"complete-example", func(c *Options, _ *executor.Spec) { c.Template = readTemplate(t, "complete-example.json") }},
		{"mounts", func(c *Options, _ *executor.Spec) { c.Template = readTemplate(t, "mounts.yaml") }},
		{"workspace-claim", func(c *Options, s *executor.Spec) {
			c.WorkspaceClaim, s.Workspace = "workspaces", strings.Repeat("0123456789abcdef", 4)
		}},
		{"workspace-host-path", func(c *Options, s *executor.Spec) {
			c.WorkspaceHostPath, s.Workspace = "/var/lib/workspaces", strings.Repeat("0123456789abcdef", 4)
		}},
		{"non-root", func(c *Options, _ *executor.Spec) { c.Template = readTemplate(t, "non-root.yaml") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, spec := testOptions(), testSpec()
			tt.edit(&c, &spec)
			got, err := YAML(build(t, c, spec))
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", tt.name+".golden.yaml")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
			if strings.Contains(string(got), "s3cret") {
				t.Error("the pod contains the registry's password")
			}
		})
	}
}

// TestWorkspaceNames checks that no name leads to another directory of the volume with the workspaces.
func TestWorkspaceNames(t *testing.T) {
	scope := strings.Repeat("0123456789abcdef", 4)
	for _, name := range []string{"", ".", "..", "../" + scope, scope + "/..", scope + "/", strings.ToUpper(scope), scope[1:], "/" + scope[1:], "$(HOME)"} {
		c, spec := testOptions(), testSpec()
		c.WorkspaceClaim, spec.Workspace = "workspaces", name
		pod := build(t, c, spec)
		for _, volume := range pod.Spec.Volumes {
			if volume.Name == WorkspaceVolume {
				t.Errorf("a job with the scope %q mounts the volume", name)
			}
		}
	}
}

func TestPodErrors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		edit   func(*executor.Spec)
		reason workflow.Reason
		want   string
	}{
		{"loopback", func(s *executor.Spec) { s.Loopback, s.LoopbackOK = true, true }, workflow.ReasonLaunch, "external_url"},
		{"system", func(s *executor.Spec) { s.OS = "windows" }, workflow.ReasonLaunch, "requires windows"},
		{"no image", func(s *executor.Spec) { s.Image = nil }, workflow.ReasonImage, "no image"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, err := New(testOptions())
			if err != nil {
				t.Fatal(err)
			}
			spec := testSpec()
			tt.edit(&spec)
			_, err = b.Pod(spec)
			wrong, ok := errors.AsType[*executor.Error](err)
			if !ok || wrong.Reason != tt.reason || !strings.Contains(wrong.Message, tt.want) || strings.Contains(wrong.Message, "\n") {
				t.Errorf("got %v, want one line with reason %s that contains %q", err, tt.reason, tt.want)
			}
		})
	}
}

func TestNewErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*Options)
		want string
	}{
		{"no image", func(c *Options) { c.AgentImage = "" }, "PULUMI_AGENT_IMAGE"},
		{"CPUs", func(c *Options) { c.CPUs = "many" }, "num_cpus: is not a number of CPUs"},
		{"negative CPUs", func(c *Options) { c.CPUs = "-1" }, "num_cpus"},
		{"two places of workspaces", func(c *Options) { c.WorkspaceClaim, c.WorkspaceHostPath = "a", "/b" }, "remove one of the two"},
		{"claim", func(c *Options) { c.WorkspaceClaim = "A b" }, "kubernetes_workspace_claim: is not the name"},
		{"whole node", func(c *Options) { c.WorkspaceHostPath = "/." }, "kubernetes_workspace_host_path: is not a directory"},
		{"relative path", func(c *Options) { c.WorkspaceHostPath = "a" }, "kubernetes_workspace_host_path: is not a directory"},
		{"memory", func(c *Options) { c.Memory = "4 GB" }, "mem_quantity: is not an amount of memory"},
		{"little memory", func(c *Options) { c.Memory = "4m" }, "mem_quantity"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := testOptions()
			tt.edit(&c)
			if _, err := New(c); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error that contains %q", err, tt.want)
			}
		})
	}
}

func TestParseMemory(t *testing.T) {
	for in, want := range map[string]int64{"4": 4 << 30, "0.5": 1 << 29, "512Mi": 512 << 20, "4Gi": 4 << 30, "1G": 1e9} {
		q, err := ParseMemory(in)
		if err != nil || q.Value() != want {
			t.Errorf("ParseMemory(%q) = %d, %v; want %d", in, q.Value(), err, want)
		}
	}
}

// TestNames checks that names are valid, and different for different jobs.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, owner := range []string{"a", "ab", "Ä b/c", ""} {
		for _, job := range []string{"bc", "c", "8f1c0c9a-6a0f-4e8e-9f0e-0d5b7a8f4f10", "UPPER_case", ""} {
			for _, epoch := range []int64{1, 1 << 62} {
				name := Name(owner, job, epoch)
				if seen[name] || len(name) > 63 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
					t.Errorf("Name(%q, %q, %d) = %q is repeated or invalid", owner, job, epoch, name)
				}
				seen[name] = true
			}
		}
	}
	long := strings.Repeat("x", 64)
	for in, want := range map[string]string{"a-b": "a-b", "a/b": executor.Digest("a/b"), long: executor.Digest(long)} {
		if got := LabelValue(in); got != want {
			t.Errorf("LabelValue(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestGrace checks that a template can lengthen, but not shorten, the time that pulumi gets.
func TestGrace(t *testing.T) {
	for seconds, want := range map[string]int64{"1": 930, "3600": 3600} {
		c := testOptions()
		c.Template = "spec: {terminationGracePeriodSeconds: " + seconds + "}"
		if got := *build(t, c, testSpec()).Spec.TerminationGracePeriodSeconds; got != want {
			t.Errorf("grace period with a template of %s s = %d, want %d", seconds, got, want)
		}
	}
}

func TestServiceAccountToken(t *testing.T) {
	for _, tt := range []struct {
		account, template string
		want              *bool
	}{
		{"", "", new(false)},
		{"deployer", "", nil},
		{"", "spec: {serviceAccountName: x}", nil},
		{"", "spec: {serviceAccount: x}", nil},
		{"", "spec: {automountServiceAccountToken: true}", new(true)},
		{"deployer", "spec: {automountServiceAccountToken: false}", new(false)},
	} {
		c := testOptions()
		c.ServiceAccount, c.Template = tt.account, tt.template
		if diff := cmp.Diff(tt.want, build(t, c, testSpec()).Spec.AutomountServiceAccountToken); diff != "" {
			t.Errorf("automountServiceAccountToken with account %q and template %q (-want +got):\n%s", tt.account, tt.template, diff)
		}
	}
}

// TestSpoolUser checks that the sidecar runs as the user of the main container.
func TestSpoolUser(t *testing.T) {
	c := testOptions()
	c.Template = "spec: {containers: [{name: pulumi-workflow, securityContext: {runAsUser: 1234, runAsGroup: 5}}]}"
	pod := build(t, c, testSpec())
	main, spool := find(pod.Spec.Containers, MainContainer), find(pod.Spec.InitContainers, SpoolContainer)
	if main.Image != spool.Image {
		t.Errorf("images are %s and %s, want the same", main.Image, spool.Image)
	}
	if got := spool.SecurityContext; got.RunAsUser == nil || *got.RunAsUser != 1234 || got.RunAsGroup == nil || *got.RunAsGroup != 5 {
		t.Errorf("the sidecar's security context is %+v, want user 1234 and group 5", got)
	}
}

// TestPrivileged checks that the default that the cluster rejects in a privileged container is removed.
func TestPrivileged(t *testing.T) {
	for _, context := range []string{"{privileged: true}", "{capabilities: {add: [SYS_ADMIN]}}"} {
		c := testOptions()
		c.Template = "spec: {containers: [{name: pulumi-workflow, securityContext: " + context + "}]}"
		if got := build(t, c, testSpec()).Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation; got != nil {
			t.Errorf("with %s, allowPrivilegeEscalation is %t, want none", context, *got)
		}
	}
}

// TestOrder checks that the template's init containers run between ours and can use the volume with
// the runner.
func TestOrder(t *testing.T) {
	c := testOptions()
	c.Template = `spec:
  containers: [{name: side, image: i}]
  initContainers:
  - {name: one, image: i}
  - {name: two, image: i, volumeMounts: [{name: workflow-runner-volume, mountPath: /elsewhere}]}
  - {name: three, image: i, restartPolicy: Always, volumeMounts: [{name: other, mountPath: /mnt/pulumi/workflow}]}
  volumes: [{name: other, emptyDir: {}}]`
	pod := build(t, c, testSpec())
	var names []string
	mounts := map[string]int{}
	for _, init := range pod.Spec.InitContainers {
		names = append(names, init.Name)
		mounts[init.Name] = len(init.VolumeMounts)
	}
	if want := []string{InitContainer, "one", "two", "three", SpoolContainer}; !slices.Equal(names, want) {
		t.Errorf("init containers are %v, want %v", names, want)
	}
	if mounts["one"] != 1 || mounts["two"] != 1 || mounts["three"] != 1 {
		t.Errorf("the template's init containers have %v mounts, want one each", mounts)
	}
	if pod.Spec.Containers[0].Name != MainContainer {
		t.Errorf("the first container is %s, want %s", pod.Spec.Containers[0].Name, MainContainer)
	}
}

// TestSecretIsolated checks that only the init container mounts the Secret, and only it and the main
// container mount the launch document.
func TestSecretIsolated(t *testing.T) {
	c := testOptions()
	c.Template = readTemplate(t, "complete-example.json")
	pod := build(t, c, testSpec())
	users := map[string][]string{}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, m := range container.VolumeMounts {
			users[m.Name] = append(users[m.Name], container.Name)
		}
	}
	if got := users[SecretVolume]; !slices.Equal(got, []string{InitContainer}) {
		t.Errorf("the Secret is mounted by %v", got)
	}
	if got := users[LaunchVolume]; !slices.Equal(got, []string{InitContainer, MainContainer}) {
		t.Errorf("the launch document is mounted by %v", got)
	}
	text, err := json.Marshal(pod.Spec.Containers[0].Env)
	if err != nil || strings.Contains(string(text), "secret") {
		t.Errorf("variables of the main container: %s, %v", text, err)
	}
}

func TestNotes(t *testing.T) {
	c := testOptions()
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if notes := b.Notes(); notes != nil || b.Origin() != "" {
		t.Errorf("notes without a template: %q from %q", notes, b.Origin())
	}
	c.Template, c.TemplateOrigin = `spec:
  hostPID: true
  hostNetwork: true
  hostIPC: true
  shareProcessNamespace: true
  automountServiceAccountToken: true
  activeDeadlineSeconds: 60
  volumes: [{name: node, hostPath: {path: /var/run}}]
  containers:
    - {name: side, image: i, securityContext: {privileged: true}}
    - {name: pulumi-workflow, securityContext: {capabilities: {add: [SYS_PTRACE]}}}`, "TEMPLATE"
	if b, err = New(c); err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(b.Notes(), "\n")
	for _, want := range []string{"hostPID", "hostNetwork", "hostIPC", "shareProcessNamespace", `"default"`, "60 s", "/var/run", "container side privileged", "SYS_PTRACE"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not contain %q:\n%s", want, notes)
		}
	}
	if b.Origin() != "TEMPLATE" {
		t.Errorf("origin %q, want TEMPLATE", b.Origin())
	}
}

// TestExample checks the template in the examples.
func TestExample(t *testing.T) {
	c := testOptions()
	c.TemplateFile = filepath.Join("..", "..", "..", "..", "..", "examples", "kubernetes", "pod.yaml")
	pod := build(t, c, testSpec())
	mounted := slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == "prepare" && slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == RunnerVolume && m.MountPath == RunnerDir
		})
	})
	if !mounted {
		t.Errorf("the template's init container does not mount the job's volume: %+v", pod.Spec.InitContainers)
	}
	main := pod.Spec.Containers[0]
	if !slices.Contains(main.Env, corev1.EnvVar{Name: "HELLO", Value: "world"}) || main.Resources.Requests.Cpu().String() != "100m" {
		t.Errorf("the job's container is %+v", main)
	}
	if pod.Labels["cost-center"] != "deployments" || pod.Spec.NodeSelector["node-type"] != "worker" || len(pod.Spec.Tolerations) == 0 {
		t.Errorf("the pod lacks parts of the template: %+v", pod)
	}
}
