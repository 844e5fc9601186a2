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
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

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
}

// Builder builds pods. It is safe for concurrent use.
type Builder struct {
	config   Config
	requests corev1.ResourceList

	mu sync.Mutex
}

// New returns a builder. Its errors are lines for the operator that name the setting.
func New(c Config) (*Builder, error) {
	b := &Builder{config: c, requests: corev1.ResourceList{}}
	if c.AgentImage == "" {
		return nil, errors.New("image: is unknown: set PULUMI_AGENT_IMAGE to the image of this agent's release")
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
	return b, nil
}

// Namespace returns the namespace of the pods.
func (b *Builder) Namespace() string { return b.config.Namespace }

// Reload reads the template again if it changed. After an error, the builder continues to use the
// last valid template.
func (b *Builder) Reload() error { return nil }

// Pod returns the pod of a job. It contains no secrets. An error is an [*executor.Error].
func (b *Builder) Pod(spec executor.Spec) (*corev1.Pod, error) {
	if err := check(spec); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.generate(spec), nil
}

func check(spec executor.Spec) error {
	message := ""
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
