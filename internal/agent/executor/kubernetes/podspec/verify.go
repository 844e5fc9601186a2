package podspec

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"workflowagent/internal/protocol"
)

// violation is a change of a template to something that the job needs.
type violation struct {
	path []string
	what string
}

// verifier collects the violations of a merged pod.
type verifier struct {
	pod, base  *corev1.Pod
	violations []violation
}

// verify returns the violations of the merged pod, compared with the pod without a template.
func verify(pod, base *corev1.Pod) []violation {
	v := &verifier{pod: pod, base: base}
	v.metadata()
	v.spec()
	v.container("containers", pod.Spec.Containers, base.Spec.Containers, MainContainer)
	v.container("initContainers", pod.Spec.InitContainers, base.Spec.InitContainers, InitContainer)
	v.container("initContainers", pod.Spec.InitContainers, base.Spec.InitContainers, SpoolContainer)
	v.volumes()
	v.others("containers", pod.Spec.Containers)
	v.others("initContainers", pod.Spec.InitContainers)
	return v.violations
}

func (v *verifier) fail(what string, path ...string) {
	v.violations = append(v.violations, violation{path, what})
}

// same fails unless two values are equal.
func (v *verifier) same(got, want any, what string, path ...string) {
	if !equality.Semantic.DeepEqual(got, want) {
		v.fail(what, path...)
	}
}

const keep = "belongs to the agent: remove it from the template"

func (v *verifier) metadata() {
	v.same(v.pod.TypeMeta, v.base.TypeMeta, "the template is not a Pod of v1: remove apiVersion and kind, or correct them", "kind")
	v.same(v.pod.Status, v.base.Status, keep, "status")
	got, want := v.pod.ObjectMeta, v.base.ObjectMeta
	for _, field := range []struct {
		name      string
		got, want map[string]string
	}{{"labels", got.Labels, want.Labels}, {"annotations", got.Annotations, want.Annotations}} {
		for key, value := range field.want {
			if has, ok := field.got[key]; !ok || has != value {
				v.fail("belongs to the agent, which finds its pods by it: remove it from the template", "metadata", field.name, key)
			}
		}
		for key := range field.got {
			if _, ok := field.want[key]; !ok && strings.HasPrefix(key, prefix) {
				v.fail("has the prefix "+prefix+", which belongs to the agent: rename it", "metadata", field.name, key)
			}
		}
	}
	fields, base := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range fields.NumField() {
		if field := fields.Type().Field(i); field.Name != "Labels" && field.Name != "Annotations" {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			v.same(fields.Field(i).Interface(), base.Field(i).Interface(), keep+"; a template may set labels and annotations", "metadata", name)
		}
	}
}

func (v *verifier) spec() {
	got, want := v.pod.Spec, v.base.Spec
	v.same(got.RestartPolicy, want.RestartPolicy, "must be Never, because a job must not run twice: remove it from the template", "spec", "restartPolicy")
	if len(got.EphemeralContainers) > 0 {
		v.fail("cannot be part of a new pod: remove it from the template", "spec", "ephemeralContainers")
	}
	if got.OS != nil && got.OS.Name != corev1.Linux {
		v.fail("must be linux: remove it from the template", "spec", "os")
	}
	if got.SecurityContext == nil {
		v.fail("must not be removed: set the fields that must differ", "spec", "securityContext")
	}
	for _, s := range want.ImagePullSecrets {
		if !slices.Contains(got.ImagePullSecrets, s) {
			v.fail("must not be replaced, because the job's registry needs one of its own", "spec", "imagePullSecrets")
		}
	}
}

// container compares one of our containers.
func (v *verifier) container(list string, pod, base []corev1.Container, name string) {
	at := []string{"spec", list, "[" + name + "]"}
	got, want := find(pod, name), find(base, name)
	others := v.pod.Spec.InitContainers
	if list == "initContainers" {
		others = v.pod.Spec.Containers
	}
	if got == nil || find(others, name) != nil || count(pod, name) > 1 {
		v.fail("the pod must have exactly one container with this name: remove what deletes, moves or repeats it", at...)
		return
	}
	fields, original := reflect.ValueOf(*got), reflect.ValueOf(*want)
	for i := range fields.NumField() {
		field := fields.Type().Field(i)
		json, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if free := []string{"Name", "WorkingDir", "Ports", "EnvFrom", "Env", "Resources", "ResizePolicy", "VolumeMounts", "VolumeDevices", "ReadinessProbe", "ImagePullPolicy", "SecurityContext"}; slices.Contains(free, field.Name) {
			continue
		}
		what := keep
		if field.Name == "Image" {
			what = "must be the image of the job (or PULUMI_DEPLOY_OVERRIDE_IMAGE_REFERENCE): remove it from the template"
			if name == InitContainer {
				what = "must be the agent's image: remove it from the template and set PULUMI_AGENT_IMAGE"
			}
		}
		v.same(fields.Field(i).Interface(), original.Field(i).Interface(), what, append(at, json)...)
	}
	for _, env := range want.Env {
		if !slices.ContainsFunc(got.Env, func(e corev1.EnvVar) bool { return equality.Semantic.DeepEqual(e, env) }) ||
			len(slices.DeleteFunc(slices.Clone(got.Env), func(e corev1.EnvVar) bool { return e.Name != env.Name })) > 1 {
			v.fail(keep, append(at, "env", "["+env.Name+"]")...)
		}
	}
	v.mounts(at, *got, *want)
}

func count(containers []corev1.Container, name string) (n int) {
	for _, c := range containers {
		if c.Name == name {
			n++
		}
	}
	return n
}

// mounts checks that a container of ours has its mounts, and that no other mount hides them.
func (v *verifier) mounts(at []string, got, want corev1.Container) {
	at = append(slices.Clone(at), "volumeMounts")
	for _, m := range want.VolumeMounts {
		if !slices.ContainsFunc(got.VolumeMounts, func(g corev1.VolumeMount) bool { return equality.Semantic.DeepEqual(g, m) }) {
			v.fail(fmt.Sprintf("the volume %s must be mounted at %s: remove what replaces it", m.Name, m.MountPath), at...)
		}
	}
	for _, m := range got.VolumeMounts {
		if slices.ContainsFunc(want.VolumeMounts, func(w corev1.VolumeMount) bool { return equality.Semantic.DeepEqual(w, m) }) {
			continue
		}
		v.mayMount(m.Name, at)
		if protected := hides(m.MountPath, got.Name); protected != "" {
			v.fail(fmt.Sprintf("a mount at %s would hide %s: choose another path", m.MountPath, protected), at...)
		}
	}
}

// mayMount fails if only the agent may mount a volume.
func (v *verifier) mayMount(volume string, at []string) {
	switch volume {
	case LaunchVolume, SecretVolume:
		v.fail(fmt.Sprintf("must not mount the volume %s, which contains the job's token", volume), at...)
	case WorkspaceVolume:
		v.fail(fmt.Sprintf("must not mount the volume %s, which contains the workspaces of other stacks", volume), at...)
	}
}

// hides returns the path of ours that a mount in a container of ours would hide, or "".
func hides(mountPath, container string) string {
	clean := path.Clean(mountPath)
	for _, dir := range []string{JobDir, RunnerPath, LaunchDir, SecretDir, WorkspaceDir, ResultPath, protocol.FilePulumiEnv} {
		if clean == dir || strings.HasPrefix(clean, dir+"/") {
			return dir
		}
	}
	if clean == RunnerDir {
		return RunnerDir
	}
	if container == InitContainer && (clean == "/" || clean == AgentRunnerPath || strings.HasPrefix(AgentRunnerPath, clean+"/")) {
		return AgentRunnerPath
	}
	return ""
}

func (v *verifier) volumes() {
	for _, want := range v.base.Spec.Volumes {
		var found []corev1.Volume
		for _, got := range v.pod.Spec.Volumes {
			if got.Name == want.Name {
				found = append(found, got)
			}
		}
		if len(found) == 1 && want.Name == RunnerVolume && found[0].EmptyDir != nil {
			found[0].EmptyDir = want.EmptyDir // the template may limit its size or choose its medium
		}
		v.same(found, []corev1.Volume{want}, keep, "spec", "volumes", "["+want.Name+"]")
	}
	secret := v.base.Name
	for _, volume := range v.pod.Spec.Volumes {
		at := []string{"spec", "volumes", "[" + volume.Name + "]"}
		if volume.Name != SecretVolume && volume.Secret != nil && volume.Secret.SecretName == secret {
			v.fail("must not refer to the job's Secret", at...)
		}
		if volume.Projected != nil {
			for _, source := range volume.Projected.Sources {
				if source.Secret != nil && source.Secret.Name == secret {
					v.fail("must not refer to the job's Secret", at...)
				}
			}
		}
	}
}

// others checks the containers of the template, and the variables of all containers.
func (v *verifier) others(list string, containers []corev1.Container) {
	for _, c := range containers {
		at := []string{"spec", list, "[" + c.Name + "]"}
		for _, env := range c.Env {
			if env.ValueFrom != nil && env.ValueFrom.SecretKeyRef != nil && env.ValueFrom.SecretKeyRef.Name == v.base.Name {
				v.fail("must not refer to the job's Secret", append(at, "env", "["+env.Name+"]")...)
			}
		}
		for _, from := range c.EnvFrom {
			if from.SecretRef != nil && from.SecretRef.Name == v.base.Name {
				v.fail("must not refer to the job's Secret", append(at, "envFrom")...)
			}
		}
		for _, rule := range c.RestartPolicyRules {
			if rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
				v.fail("must not restart all containers, because a job must not run twice: remove the rule", append(at, "restartPolicyRules")...)
			}
		}
		if isOurs(c.Name) {
			continue
		}
		if c.Image == "" {
			v.fail("names no image: add one, or correct the container's name", at...)
		}
		for _, m := range c.VolumeMounts {
			v.mayMount(m.Name, append(at, "volumeMounts"))
		}
	}
}
