package podspec

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/protocol"
)

// The deadline of a pod exceeds the job's own timeout by deadlineSlack, for images that take long to
// pull and for a runner that delivers its log for a day while the server is unavailable.
const deadlineSlack = 26 * time.Hour

// maxLaunch limits the launch document. A Secret contains at most 1 MiB.
const maxLaunch = "2Mi"

// generate returns the pod without a template.
func (b *Builder) generate(spec executor.Spec) *corev1.Pod {
	name := Name(spec.Owner, spec.JobID, spec.Epoch)
	annotations := Annotations(spec)
	labels := Labels(spec)
	if b.config.DebugPod {
		labels[LabelDebug] = "true"
	}
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: b.config.Namespace, Labels: labels, Annotations: annotations,
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: seconds(spec.Patience + graceSlack),
			EnableServiceLinks:            new(false),
			SecurityContext: &corev1.PodSecurityContext{
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			ServiceAccountName: b.config.ServiceAccount,
			InitContainers:     []corev1.Container{b.initContainer(), b.spoolContainer(spec)},
			Containers:         []corev1.Container{b.mainContainer(spec)},
			Volumes:            volumes(name),
		},
	}
	if spec.Timeout > 0 {
		pod.Spec.ActiveDeadlineSeconds = seconds(spec.Timeout + spec.Patience + deadlineSlack)
	}
	b.addWorkspace(spec, pod)
	if spec.Image.Credentials != nil {
		pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: name}}
	}
	return pod
}

func (b *Builder) initContainer() corev1.Container {
	return corev1.Container{
		Name:            InitContainer,
		Image:           b.config.AgentImage,
		ImagePullPolicy: b.pullPolicy(),
		Command: []string{
			AgentRunnerPath, "install", "--to", RunnerDir, "--launch", SecretPath, "--launch-to", LaunchPath,
		},
		SecurityContext: helperSecurity(),
		Resources:       helperResources(),
		VolumeMounts: []corev1.VolumeMount{
			{Name: RunnerVolume, MountPath: RunnerDir},
			{Name: LaunchVolume, MountPath: LaunchDir},
			{Name: SecretVolume, MountPath: SecretDir, ReadOnly: true},
		},
	}
}

func (b *Builder) spoolContainer(spec executor.Spec) corev1.Container {
	return corev1.Container{
		Name:            SpoolContainer,
		Image:           spec.Image.Reference,
		ImagePullPolicy: b.pullPolicy(),
		Command:         []string{RunnerPath, "keep", "--job-dir", JobDir},
		RestartPolicy:   new(corev1.ContainerRestartPolicyAlways),
		SecurityContext: helperSecurity(),
		Resources:       helperResources(),
		VolumeMounts:    []corev1.VolumeMount{{Name: RunnerVolume, MountPath: RunnerDir, ReadOnly: true}},
	}
}

func (b *Builder) mainContainer(spec executor.Spec) corev1.Container {
	c := corev1.Container{
		Name:            MainContainer,
		Image:           spec.Image.Reference,
		ImagePullPolicy: b.pullPolicy(),
		Command: []string{
			RunnerPath, "run", "--job-dir", JobDir, "--launch-file", LaunchPath, "--holder-env", HolderEnv,
		},
		Env: []corev1.EnvVar{{
			Name:      HolderEnv,
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.uid"}},
		}},
		TerminationMessagePath:   ResultPath,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		SecurityContext:          &corev1.SecurityContext{AllowPrivilegeEscalation: new(false)},
		VolumeMounts: []corev1.VolumeMount{
			{Name: RunnerVolume, MountPath: RunnerDir},
			{Name: RunnerVolume, MountPath: protocol.FilePulumiEnv, SubPath: protocol.FileEnv}, // for images of any user
			{Name: LaunchVolume, MountPath: LaunchDir},
		},
	}
	if len(b.requests) > 0 {
		c.Resources.Requests = b.requests.DeepCopy()
	}
	return c
}

func (b *Builder) pullPolicy() corev1.PullPolicy {
	if b.config.PullPolicy == "" {
		return corev1.PullIfNotPresent
	}
	return corev1.PullPolicy(b.config.PullPolicy)
}

func volumes(secret string) []corev1.Volume {
	return []corev1.Volume{
		{Name: RunnerVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: LaunchVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium: corev1.StorageMediumMemory, SizeLimit: new(resource.MustParse(maxLaunch)),
		}}},
		{Name: SecretVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: secret,
			Items:      []corev1.KeyToPath{{Key: LaunchKey, Path: LaunchKey}},
			// The init container can be any user's. No other container mounts this volume.
			DefaultMode: new(int32(0o444)),
		}}},
	}
}

// helperSecurity is the security context of the containers that run only our program.
func helperSecurity() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

func helperResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
	}
}

func seconds(d time.Duration) *int64 { return new(int64((d + time.Second - 1) / time.Second)) }
