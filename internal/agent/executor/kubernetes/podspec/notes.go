package podspec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// YAML returns a pod as YAML without its status.
func YAML(pod *corev1.Pod) ([]byte, error) {
	text, err := json.Marshal(pod)
	if err != nil {
		return nil, fmt.Errorf("encoding the pod: %w", err)
	}
	var document map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("encoding the pod: %w", err)
	}
	delete(document, "status")
	out, err := yaml.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encoding the pod: %w", err)
	}
	return out, nil
}

// Origin returns the file or the variable of the template in use, or "" if there is none.
func (b *Builder) Origin() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.template == nil {
		return ""
	}
	return b.template.origin
}

// Notes returns the choices of the template that weaken the isolation of jobs or can end them, one
// sentence each. They are the administrator's to make.
func (b *Builder) Notes() []string {
	b.mu.Lock()
	t := b.template
	b.mu.Unlock()
	if t == nil {
		return nil
	}
	pod, err := b.build(samples()[0], t)
	if err != nil {
		return []string{err.Error()}
	}
	base := b.generate(samples()[0])
	var notes []string
	note := func(condition bool, format string, args ...any) {
		if condition {
			notes = append(notes, fmt.Sprintf("the pod template "+format, args...))
		}
	}
	spec := pod.Spec
	note(spec.HostNetwork, "sets hostNetwork: jobs share the network of their node, including its services on loopback")
	note(spec.HostPID, "sets hostPID: jobs see the processes of their node")
	note(spec.HostIPC, "sets hostIPC: jobs share the interprocess communication of their node")
	note(spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace, "sets shareProcessNamespace: all containers of a pod can signal and read the runner")
	note(spec.AutomountServiceAccountToken != nil && *spec.AutomountServiceAccountToken, "sets automountServiceAccountToken: jobs can use the cluster's API as the service account %q", cmp.Or(spec.ServiceAccountName, "default"))
	if deadline := spec.ActiveDeadlineSeconds; deadline != nil && *deadline != *base.Spec.ActiveDeadlineSeconds {
		note(true, "sets activeDeadlineSeconds: the cluster kills jobs %d s after their start", *deadline)
	}
	for _, volume := range spec.Volumes {
		if volume.HostPath != nil {
			note(true, "mounts the path %s of the node (volume %s)", volume.HostPath.Path, volume.Name)
		}
	}
	for _, c := range append(append([]corev1.Container{}, spec.InitContainers...), spec.Containers...) {
		security := c.SecurityContext
		note(security != nil && security.Privileged != nil && *security.Privileged, "makes the container %s privileged: it controls its node", c.Name)
		if security == nil || security.Capabilities == nil || c.Name != MainContainer {
			continue
		}
		for _, capability := range []corev1.Capability{"ALL", "SYS_ADMIN", "SYS_PTRACE"} {
			note(slices.Contains(security.Capabilities.Add, capability), "adds the capability %s to the container %s: jobs can read the runner's memory, which contains the job's token", capability, c.Name)
		}
	}
	return notes
}
