package kubernetes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// ended returns how the runner of a pod exited, if it has exited. stopped means that this agent
// deleted the pod.
func ended(v view, stopped bool) (exit executor.Exit, done bool) {
	pod := v.pod
	if pod == nil {
		return executor.Exit{Code: -1, Lost: true, Detail: "the job's pod is missing"}, true
	}
	if main := mainStatus(pod); main != nil && main.State.Terminated != nil {
		exit := exitOf(main.State.Terminated)
		if exit.Success() {
			return exit, true
		}
		if !stopped && exit.Reason == workflow.ReasonNone {
			exit.Reason = endReason(pod)
		}
		if detail := endDetail(pod); detail != "" && !stopped {
			exit.Detail = detail
		}
		return exit, true
	}
	if !final(pod) && !v.gone {
		return executor.Exit{}, false
	}
	exit = executor.Exit{Code: -1, Lost: mainStarted(pod) || v.gone, Detail: endDetail(pod)}
	if exit.Detail == "" {
		exit.Detail = "the job's pod was deleted"
	}
	if !stopped {
		exit.Reason = endReason(pod)
	}
	return exit, true
}

// exitOf converts the end of the main container.
func exitOf(t *corev1.ContainerStateTerminated) executor.Exit {
	exit := executor.Exit{Code: int(t.ExitCode)}
	if t.FinishedAt.Year() > 1970 {
		exit.FinishedAt = t.FinishedAt.Time
	}
	switch {
	case neverRan(t):
		return executor.Exit{Code: -1, Reason: workflow.ReasonLaunch, Detail: oneLine(t.Message), FinishedAt: exit.FinishedAt}
	case t.Reason == "ContainerStatusUnknown", t.Reason == "Unknown" && t.ExitCode == 255:
		// The node has lost the container, for example because it was restarted.
		return executor.Exit{Code: -1, Lost: true, Detail: oneLine(t.Reason + ": " + t.Message), FinishedAt: exit.FinishedAt}
	}
	var result protocol.Result
	if json.Unmarshal([]byte(t.Message), &result) == nil {
		exit.Result = &result
	}
	if exit.Code == 0 {
		return exit
	}
	exit.OOMKilled = t.Reason == "OOMKilled"
	if name := cmp.Or(executor.SignalOf(128+int(t.Signal)), executor.SignalOf(exit.Code)); name != "" {
		exit.Code, exit.Signal = -1, name
	}
	return exit
}

// endReason returns the reason that the cluster states for the end of a pod.
func endReason(pod *corev1.Pod) workflow.Reason {
	switch {
	case pod.Status.Reason == "DeadlineExceeded":
		return workflow.ReasonTimeout
	case pod.Status.Reason != "", disrupted(pod) != nil, pod.DeletionTimestamp != nil:
		return workflow.ReasonEvicted
	}
	return workflow.ReasonNone
}

// endDetail returns the cluster's own words about the end of a pod.
func endDetail(pod *corev1.Pod) string {
	if pod.Status.Reason != "" {
		return oneLine(pod.Status.Reason + ": " + pod.Status.Message)
	}
	if c := disrupted(pod); c != nil {
		return oneLine(c.Reason + ": " + c.Message)
	}
	if pod.DeletionTimestamp != nil {
		return "the job's pod was deleted"
	}
	return ""
}

// disrupted returns the condition that names the component that ended the pod: the scheduler by
// preemption, the eviction API, a taint of the node, or the node itself.
func disrupted(pod *corev1.Pod) *corev1.PodCondition {
	for i, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// disruption returns the reason of a disruption as the continuation of a message.
func disruption(pod *corev1.Pod) string {
	if c := disrupted(pod); c != nil {
		return fmt.Sprintf(" (%s)", oneLine(c.Reason+": "+c.Message))
	}
	return ""
}

// overdue reports whether a node should have confirmed the deletion of its pod long ago. began is
// when the caller first saw the deletion; the cluster's clock can differ from the agent's.
func overdue(pod *corev1.Pod, began, now time.Time) bool {
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return false
	}
	return now.Sub(began) > time.Duration(*pod.DeletionGracePeriodSeconds)*time.Second+nodeTime
}

// nodeTime is how long after the grace period a node may take to confirm a deletion.
const nodeTime = 2 * time.Minute
