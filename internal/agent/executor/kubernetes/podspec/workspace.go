package podspec

import (
	corev1 "k8s.io/api/core/v1"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// addWorkspace gives a job its workspace: a directory of the configured volume, named after the scope.
// The cluster makes that directory. No container sees the rest of the volume.
func (b *Builder) addWorkspace(spec executor.Spec, pod *corev1.Pod) {
	if !workflow.IsScope(spec.Workspace) || b.config.WorkspaceClaim == "" && b.config.WorkspaceHostPath == "" {
		return
	}
	source := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
		Path: b.config.WorkspaceHostPath, Type: new(corev1.HostPathDirectoryOrCreate),
	}}
	if b.config.WorkspaceClaim != "" {
		source = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: b.config.WorkspaceClaim}}
	}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: WorkspaceVolume, VolumeSource: source})
	main := find(pod.Spec.Containers, MainContainer)
	main.Env = append(main.Env, corev1.EnvVar{Name: protocol.EnvWorkspace, Value: WorkspaceDir})
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: WorkspaceVolume, MountPath: WorkspaceDir, SubPath: spec.Workspace})
}
