// Package podspec builds the pods of jobs. It does not connect to a cluster.
//
// A pod consists of an init container that copies the runner and the launch document, the main
// container that runs the job in the job's image, and a native sidecar that prints the part of the
// log that the runner could not send. The administrator's template is merged over this pod.
//
// Only the init container sees the job's Secret. It copies the launch document to a volume in memory
// that it shares only with the main container, and the runner removes the document before it runs
// any step. The sidecar uses the job's image and security context, so that it runs as the same user
// as the runner and can read its files.
package podspec

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/workflow"
)

// Config configures a [Builder].
type Config struct {
	Namespace  string // of the jobs
	AgentImage string // image of the init container, which contains the runner at [AgentRunnerPath]
	// PullPolicy applies to the pod's images: Always, IfNotPresent or Never. "" means IfNotPresent.
	PullPolicy     string
	ServiceAccount string // "" means the namespace's default, without a token
	CPUs           string // CPU request of the main container, as a quantity; "" means none
	Memory         string // its memory request, as a quantity; a plain number is in Gi; "" means none
	DebugPod       bool   // labels the pods as to be kept after their jobs

	// Workspaces are kept in the persistent volume claim WorkspaceClaim of the namespace, or else in
	// the directory WorkspaceHostPath of each node. If both are "", jobs have none.
	WorkspaceClaim    string
	WorkspaceHostPath string

	// The template is Template, else the content of TemplateFile, else that of
	// [Options].DefaultTemplateFile.
	Template     string
	TemplateFile string
}

// Options configure a [Builder].
type Options struct {
	Config
	TemplateOrigin      string // where Template is from, for messages
	DefaultTemplateFile string // may be missing, empty or a directory
}

// Builder builds pods. It is safe for concurrent use.
type Builder struct {
	config   Options
	requests corev1.ResourceList

	mu       sync.Mutex
	text     []byte    // of the template
	template *template // nil if there is none
}

// New returns a builder. Its errors are lines for the operator that name the setting.
func New(c Options) (*Builder, error) {
	b := &Builder{config: c, requests: corev1.ResourceList{}}
	if c.AgentImage == "" {
		return nil, errors.New("image: is unknown: set PULUMI_AGENT_IMAGE to the image of this agent's release")
	}
	if c.WorkspaceClaim != "" && c.WorkspaceHostPath != "" {
		return nil, errors.New("kubernetes_workspace_claim: is set in addition to kubernetes_workspace_host_path: remove one of the two")
	}
	if len(validation.IsDNS1123Subdomain(c.WorkspaceClaim)) > 0 && c.WorkspaceClaim != "" {
		return nil, errors.New("kubernetes_workspace_claim: is not the name of a persistent volume claim: use lower-case letters, digits, dots and dashes")
	}
	if c.WorkspaceHostPath != "" && (!path.IsAbs(c.WorkspaceHostPath) || path.Clean(c.WorkspaceHostPath) == "/") {
		return nil, errors.New("kubernetes_workspace_host_path: is not a directory for workspaces: write an absolute path below /")
	}
	for _, request := range []struct {
		key, value string
		name       corev1.ResourceName
		parse      func(string) (resource.Quantity, error)
	}{
		{"num_cpus", c.CPUs, corev1.ResourceCPU, ParseCPUs},
		{"mem_quantity", c.Memory, corev1.ResourceMemory, ParseMemory},
	} {
		if request.value == "" {
			continue
		}
		quantity, err := request.parse(request.value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", request.key, err)
		}
		b.requests[request.name] = quantity
	}
	if err := b.Reload(); err != nil {
		return nil, err
	}
	return b, nil
}

// Namespace returns the namespace of the pods.
func (b *Builder) Namespace() string { return b.config.Namespace }

// Reload reads the template again and checks it if it changed. After an error, which names the file
// and the line, the builder continues to use the last valid template.
func (b *Builder) Reload() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	src := b.config.source()
	text, err := src.read()
	if err != nil {
		return err
	}
	if b.text != nil && bytes.Equal(text, b.text) {
		return nil
	}
	t, err := parse(src.origin, text)
	if err != nil {
		return err
	}
	for _, spec := range samples() {
		if _, err := b.build(spec, t); err != nil {
			return err
		}
	}
	b.text, b.template = append([]byte{}, text...), t
	return nil
}

// samples returns jobs with which a template is checked.
func samples() []executor.Spec {
	spec := executor.Spec{
		JobID: "sample", Epoch: 1, Owner: "sample", Labels: map[string]string{"stack": "sample", "deployment_id": "sample"},
		Image: &workflow.Image{Reference: "sample"}, Timeout: time.Hour, Patience: time.Minute,
		Workspace: strings.Repeat("0", 64),
	}
	private := spec
	private.Image = &workflow.Image{Reference: "sample", Credentials: &workflow.ImageCredentials{}}
	return []executor.Spec{spec, private}
}

// Pod returns the pod of a job. It contains no secrets. An error is an [*executor.Error].
func (b *Builder) Pod(spec executor.Spec) (*corev1.Pod, error) {
	if err := check(spec); err != nil {
		return nil, err
	}
	b.mu.Lock()
	t := b.template
	b.mu.Unlock()
	pod, err := b.build(spec, t)
	if err != nil {
		return nil, &executor.Error{Reason: workflow.ReasonLaunch, Message: "The agent's pod template cannot be used: " + err.Error(), Err: err}
	}
	return pod, nil
}

// build merges a template, which may be nil, over the pod of a job.
func (b *Builder) build(spec executor.Spec, t *template) (*corev1.Pod, error) {
	base := b.generate(spec)
	pod := base.DeepCopy()
	if t != nil {
		var err error
		if pod, err = t.merge(base); err != nil {
			return nil, err
		}
		if violations := verify(pod, base); len(violations) > 0 {
			first := slices.MinFunc(violations, func(a, b violation) int { return cmp.Compare(t.line(a.path), t.line(b.path)) })
			return nil, t.at(first.path, "%s", first.what)
		}
	}
	arrange(pod, base)
	return pod, nil
}

func check(spec executor.Spec) error {
	var message string
	reason := workflow.ReasonLaunch
	switch {
	case spec.OS != "" && spec.OS != "linux":
		message = fmt.Sprintf("This job requires %s, but the agent runs jobs in Linux containers", spec.OS)
	case spec.Loopback:
		message = "The job's server has a loopback address, which a pod cannot reach: set the server's external_url (and the agent's service_url) to an address that pods can reach"
	case spec.Image == nil || spec.Image.Reference == "":
		reason = workflow.ReasonImage
		message = "The job names no image"
	default:
		return nil
	}
	return &executor.Error{Reason: reason, Message: message}
}

// graceSlack is how long the runner needs for its log and result after pulumi has exited.
const graceSlack = 30 * time.Second
