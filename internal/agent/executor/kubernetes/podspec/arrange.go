package podspec

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// helperUser is the user of the init container in a pod that must not run as root. The image of the
// agent names no user.
const helperUser = 65532

// needless are those of an engine's default capabilities that jobs do not need. With NET_RAW, a job
// could intercept the traffic of other pods on its node.
var needless = []corev1.Capability{"AUDIT_WRITE", "MKNOD", "NET_RAW"}

// arrange completes a merged pod: it orders the containers and sets what depends on the template's
// own choices.
func arrange(pod, base *corev1.Pod) {
	spec := &pod.Spec
	order(spec.Containers, map[string]int{MainContainer: -1})
	order(spec.InitContainers, map[string]int{InitContainer: -1, SpoolContainer: 1}) // the cluster stops the last sidecar first
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; !isOurs(c.Name) {
			mountRunner(c)
		}
	}
	main, spool, init := find(spec.Containers, MainContainer), find(spec.InitContainers, SpoolContainer), find(spec.InitContainers, InitContainer)
	if main != nil && spool != nil && init != nil {
		secure(spec, main, spool, init)
	}
	if spec.AutomountServiceAccountToken == nil && cmp.Or(spec.ServiceAccountName, spec.DeprecatedServiceAccount) == "" {
		spec.AutomountServiceAccountToken = new(false)
	}
	if grace := base.Spec.TerminationGracePeriodSeconds; spec.TerminationGracePeriodSeconds == nil || *spec.TerminationGracePeriodSeconds < *grace {
		spec.TerminationGracePeriodSeconds = grace
	}
}

// order sorts containers by rank. The cluster starts sidecars in this order, and stops them in the
// reverse order.
func order(containers []corev1.Container, rank map[string]int) {
	slices.SortStableFunc(containers, func(a, b corev1.Container) int { return rank[a.Name] - rank[b.Name] })
}

func isOurs(container string) bool {
	return container == MainContainer || container == InitContainer || container == SpoolContainer
}

func find(containers []corev1.Container, name string) *corev1.Container {
	for i := range containers {
		if containers[i].Name == name {
			return &containers[i]
		}
	}
	return nil
}

// mountRunner gives the template's init container the volume to which published templates write.
func mountRunner(c *corev1.Container) {
	for _, m := range c.VolumeMounts {
		if m.Name == RunnerVolume || m.MountPath == RunnerDir {
			return
		}
	}
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: RunnerVolume, MountPath: RunnerDir})
}

// secure makes the sidecar run as the user of the main container, whose files it reads, and makes a
// pod that must not run as root meet the "restricted" Pod Security Standard.
func secure(spec *corev1.PodSpec, main, spool, init *corev1.Container) {
	if main.SecurityContext == nil {
		main.SecurityContext = &corev1.SecurityContext{}
	}
	for _, c := range []*corev1.Container{spool, init} {
		if c.SecurityContext == nil {
			c.SecurityContext = helperSecurity()
		}
	}
	of, to := main.SecurityContext, spool.SecurityContext
	privileged := of.Privileged != nil && *of.Privileged
	if privileged || of.Capabilities != nil && slices.Contains(of.Capabilities.Add, "SYS_ADMIN") {
		of.AllowPrivilegeEscalation = nil // the cluster rejects our default in combination with these
	}
	to.RunAsUser = cmp.Or(to.RunAsUser, of.RunAsUser)
	to.RunAsGroup = cmp.Or(to.RunAsGroup, of.RunAsGroup)
	to.RunAsNonRoot = cmp.Or(to.RunAsNonRoot, of.RunAsNonRoot)
	to.SELinuxOptions = cmp.Or(to.SELinuxOptions, of.SELinuxOptions)

	nonRoot := cmp.Or(of.RunAsNonRoot, spec.SecurityContext.RunAsNonRoot)
	rootless := nonRoot != nil && *nonRoot
	if of.Capabilities == nil && (rootless || !privileged) {
		dropped := needless
		if rootless {
			dropped = []corev1.Capability{"ALL"}
		}
		of.Capabilities = &corev1.Capabilities{Drop: slices.Clone(dropped)}
	}
	if !rootless {
		return
	}
	own := init.SecurityContext
	own.RunAsNonRoot = cmp.Or(own.RunAsNonRoot, new(true))
	if own.RunAsUser == nil && spec.SecurityContext.RunAsUser == nil {
		own.RunAsUser = new(int64(helperUser))
	}
}
