package kubernetes

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/kubernetes/podspec"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// tolerance is how long a problem may last that the cluster continues to retry: about three attempts
// to pull an image.
const tolerance = time.Minute

// start describes how far a pod's start has come.
type start struct {
	started   bool            // the runner's process was started
	failure   *executor.Error // the runner was not started, and will not be
	container string          // the container whose failure that is, if its output explains it
	problem   problem         // what prevents the start at the moment
}

// problem is a reason why a pod does not start. A cluster retries forever, whatever the reason.
type problem struct {
	kind      string
	reason    workflow.Reason
	text      string
	fatal     bool          // the problem remains even if the start timeout has not passed
	tolerance time.Duration // how long a fatal problem may last
}

// mainStarted reports whether the runner's process was started.
func mainStarted(pod *corev1.Pod) bool {
	main := mainStatus(pod)
	return main != nil && (main.State.Running != nil || main.State.Terminated != nil && !neverRan(main.State.Terminated) && !neverCreated(main))
}

// neverCreated reports whether a node ended a pod before it had created the container. It then states
// that the container has terminated in an unknown way.
func neverCreated(status *corev1.ContainerStatus) bool {
	return status.ContainerID == "" && status.State.Terminated != nil && status.State.Terminated.Reason == "ContainerStatusUnknown"
}

func mainStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	return statusOf(pod.Status.ContainerStatuses, podspec.MainContainer)
}

func spoolStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	return statusOf(pod.Status.InitContainerStatuses, podspec.SpoolContainer)
}

func statusOf(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

// final reports whether all containers of a pod have ended.
func final(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// neverRan reports whether a container ended because its process could not be started.
func neverRan(t *corev1.ContainerStateTerminated) bool {
	return t.Reason == "StartError" || t.Reason == "ContainerCannotRun"
}

// startOf judges a pod's state by its containers. The phase remains Running while a template's
// container runs.
func startOf(v view) start {
	pod := v.pod
	if mainStarted(pod) {
		return start{started: true}
	}
	if v.gone {
		return start{failure: failure(workflow.ReasonEvicted, "The pod was deleted before it started; the job did not run"+disruption(pod), nil)}
	}
	if main := mainStatus(pod); main != nil && main.State.Terminated != nil && neverRan(main.State.Terminated) {
		return start{failure: failure(workflow.ReasonLaunch, "The runner could not be started in the image: "+oneLine(main.State.Terminated.Message), nil)}
	}
	if final(pod) {
		return refused(pod)
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, status := range statuses {
			if status.State.Waiting != nil {
				if p := waiting(status.Name, status.Image, status.State.Waiting); p.kind != "" {
					return start{problem: p}
				}
			}
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return start{problem: problem{kind: c.Reason, text: "The pod waits for a node: " + oneLine(c.Message)}}
		}
	}
	return start{}
}

// refused describes a pod that ended before its main container started.
func refused(pod *corev1.Pod) start {
	for _, status := range pod.Status.InitContainerStatuses {
		t := status.State.Terminated
		if t == nil || t.ExitCode == 0 || pod.Status.Reason != "" {
			continue
		}
		what := fmt.Sprintf("The init container %s exited with code %d (%s)", status.Name, t.ExitCode, t.Reason)
		if t.Message != "" {
			return start{failure: failure(workflow.ReasonLaunch, what+": "+oneLine(t.Message), nil)}
		}
		return start{failure: failure(workflow.ReasonLaunch, what, nil), container: status.Name}
	}
	reason := endReason(pod)
	if reason == workflow.ReasonNone {
		reason = workflow.ReasonLaunch
	}
	text := "The cluster ended the pod before the job started"
	if detail := endDetail(pod); detail != "" {
		text += ": " + detail
	}
	return start{failure: failure(reason, text, nil)}
}

// waiting describes why a container waits. Most reasons are temporary in the eyes of the cluster.
func waiting(container, image string, w *corev1.ContainerStateWaiting) problem {
	explained := func(what string) string {
		if w.Message == "" {
			return what + " (" + w.Reason + ")"
		}
		return what + " (" + w.Reason + "): " + oneLine(w.Message)
	}
	switch w.Reason {
	case "", "PodInitializing", "ContainerCreating":
		return problem{}
	case "InvalidImageName", "ErrImageNeverPull":
		return problem{kind: "image", reason: workflow.ReasonImage, text: explained("The image " + image + " cannot be used"), fatal: true}
	case "ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed":
		return problem{kind: "image", reason: workflow.ReasonImage, text: explained("The image " + image + " cannot be pulled"), fatal: true, tolerance: tolerance}
	}
	return problem{kind: "container", reason: workflow.ReasonLaunch, text: explained("The container " + container + " cannot be started"), fatal: true, tolerance: tolerance}
}

func oneLine(text string) string { return termtext.OneLine(text, 1000) }
