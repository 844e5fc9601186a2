package podspec

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// LabelCopy is the label of a copy for debugging. Its value is the name of the original pod.
	LabelCopy = prefix + "copy-of"

	copySuffix       = "-debug"
	launchAnnotation = prefix + "launch"
	dummy            = "dummy"
)

// secretName matches the names of variables that probably contain a secret.
var secretName = regexp.MustCompile(`(?i)token|secret|passw|passphrase|credential|private|api_?key|access_?key|account_?key`)

// Copy returns a pod for debugging a job's pod. It has the same images, volumes and variables, but
// its main container only waits, for at most life. The copy gets a launch document without a job, and
// dummy values and empty volumes in place of secrets, and it does not run as the pod's service
// account. Copy cannot recognize secrets in arguments, or in variables whose names do not suggest one.
// The copy is no job of an agent.
func Copy(pod *corev1.Pod, life time.Duration) *corev1.Pod {
	out := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name + copySuffix, Namespace: pod.Namespace,
			Labels: withoutOurs(pod.Labels), Annotations: withoutOurs(pod.Annotations),
		},
		Spec: *pod.Spec.DeepCopy(),
	}
	out.Labels[LabelCopy] = LabelValue(pod.Name)
	out.Annotations[launchAnnotation] = SpentLaunch

	spec := &out.Spec
	spec.ActiveDeadlineSeconds = seconds(life)
	spec.TerminationGracePeriodSeconds = seconds(time.Second)
	spec.ServiceAccountName, spec.DeprecatedServiceAccount, spec.AutomountServiceAccountToken = "", "", new(false)
	// The cluster sets these itself, some from other fields.
	spec.NodeName, spec.Priority, spec.PreemptionPolicy, spec.Overhead, spec.EphemeralContainers = "", nil, nil, nil, nil
	spec.ImagePullSecrets = slices.DeleteFunc(spec.ImagePullSecrets, func(s corev1.LocalObjectReference) bool { return s.Name == pod.Name })

	for i := range spec.Volumes {
		withoutSecrets(&spec.Volumes[i])
	}
	spec.InitContainers = slices.DeleteFunc(spec.InitContainers, func(c corev1.Container) bool { return c.Name == SpoolContainer })
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			withoutSecretVariables(&containers[i])
		}
	}
	if main := find(spec.Containers, MainContainer); main != nil {
		main.Command, main.Args = []string{RunnerPath, "keep", "--job-dir", JobDir}, nil
		main.LivenessProbe, main.ReadinessProbe, main.StartupProbe, main.Lifecycle = nil, nil, nil, nil
	}
	return out
}

func withoutOurs(m map[string]string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	maps.DeleteFunc(out, func(k, _ string) bool { return strings.HasPrefix(k, prefix) })
	return out
}

// withoutSecrets replaces a volume that can contain secrets. A CSI volume in a pod is one: its driver
// fetches secrets with the pod's identity.
func withoutSecrets(v *corev1.Volume) {
	empty := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	switch {
	case v.Name == SecretVolume:
		v.VolumeSource = corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{
				Path:     LaunchKey,
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" + launchAnnotation + "']"},
			}},
			DefaultMode: new(int32(0o444)),
		}}
	case v.Secret != nil, v.CSI != nil, v.Name == WorkspaceVolume: // a shell must not change what later jobs find
		v.VolumeSource = empty
	case v.Projected != nil:
		v.Projected.Sources = slices.DeleteFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool {
			return p.Secret != nil || p.ServiceAccountToken != nil || p.PodCertificate != nil
		})
		if len(v.Projected.Sources) == 0 {
			v.VolumeSource = empty
		}
	}
}

func withoutSecretVariables(c *corev1.Container) {
	c.EnvFrom = slices.DeleteFunc(c.EnvFrom, func(e corev1.EnvFromSource) bool { return e.SecretRef != nil })
	for i, e := range c.Env {
		fromSecret := e.ValueFrom != nil && (e.ValueFrom.SecretKeyRef != nil || e.ValueFrom.FileKeyRef != nil)
		if fromSecret || secretName.MatchString(e.Name) {
			c.Env[i] = corev1.EnvVar{Name: e.Name, Value: dummy}
		}
	}
}
