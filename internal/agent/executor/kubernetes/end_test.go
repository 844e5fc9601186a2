package kubernetes

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/kubernetes/podspec"
	"workflowagent/internal/workflow"
)

var finished = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

// samplePod returns a pod whose main container has the given state.
func samplePod(state corev1.ContainerState, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{Status: corev1.PodStatus{
		Phase:             corev1.PodRunning,
		ContainerStatuses: []corev1.ContainerStatus{{Name: "added"}, {Name: podspec.MainContainer, Image: "registry.example.com/image", State: state}},
	}}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func runs() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

func exits(code int32, reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message, FinishedAt: finished}}
}

func waits(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func fails(reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, reason, message
	}
}

func disrupts(reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		})
		deletes(pod)
	}
}

func created(pod *corev1.Pod) { pod.Status.ContainerStatuses[1].ContainerID = "containerd://id" }

func deletes(pod *corev1.Pod) { pod.DeletionTimestamp = new(finished) }

func TestEnded(t *testing.T) {
	for name, test := range map[string]struct {
		view    view
		stopped bool
		want    executor.Exit // without FinishedAt and Result
		result  bool
		running bool
	}{
		"runs":           {view: view{pod: samplePod(runs())}, running: true},
		"is deleted":     {view: view{pod: samplePod(runs(), deletes)}, running: true},
		"waits":          {view: view{pod: samplePod(waits("ContainerCreating", ""))}, running: true},
		"success":        {view: view{pod: samplePod(exits(0, "Completed", ""))}},
		"code":           {view: view{pod: samplePod(exits(7, "Error", ""))}, want: executor.Exit{Code: 7}},
		"result":         {view: view{pod: samplePod(exits(7, "Error", `{"exitCode":7}`))}, want: executor.Exit{Code: 7}, result: true},
		"bad result":     {view: view{pod: samplePod(exits(7, "Error", `{"exitCode":`))}, want: executor.Exit{Code: 7}},
		"signal":         {view: view{pod: samplePod(exits(137, "Error", ""))}, want: executor.Exit{Code: -1, Signal: "SIGKILL"}},
		"out of memory":  {view: view{pod: samplePod(exits(137, "OOMKilled", ""))}, want: executor.Exit{Code: -1, Signal: "SIGKILL", OOMKilled: true}},
		"child died":     {view: view{pod: samplePod(exits(0, "OOMKilled", ""))}},
		"start error":    {view: view{pod: samplePod(exits(128, "StartError", "no such\nfile"))}, want: executor.Exit{Code: -1, Reason: workflow.ReasonLaunch, Detail: "no such file"}},
		"status unknown": {view: view{pod: samplePod(exits(137, "ContainerStatusUnknown", "not found"))}, want: executor.Exit{Code: -1, Lost: true, Detail: "ContainerStatusUnknown: not found"}},
		"deadline": {
			view: view{pod: samplePod(exits(137, "Error", ""), fails("DeadlineExceeded", "was active too long"))},
			want: executor.Exit{Code: -1, Signal: "SIGKILL", Reason: workflow.ReasonTimeout, Detail: "DeadlineExceeded: was active too long"},
		},
		"evicted by the node": {
			view: view{pod: samplePod(exits(137, "Error", ""), fails("Evicted", "low on memory"))},
			want: executor.Exit{Code: -1, Signal: "SIGKILL", Reason: workflow.ReasonEvicted, Detail: "Evicted: low on memory"},
		},
		"evicted without a status": {
			view: view{pod: &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low on disk"}}},
			want: executor.Exit{Code: -1, Reason: workflow.ReasonEvicted, Detail: "Evicted: low on disk"},
		},
		"preempted": {
			view: view{samplePod(exits(143, "Error", ""), disrupts("PreemptionByScheduler", "a more important pod")), true},
			want: executor.Exit{Code: -1, Signal: "SIGTERM", Reason: workflow.ReasonEvicted, Detail: "PreemptionByScheduler: a more important pod"},
		},
		"deleted by another": {
			view: view{samplePod(exits(143, "Error", ""), deletes), true},
			want: executor.Exit{Code: -1, Signal: "SIGTERM", Reason: workflow.ReasonEvicted, Detail: "the job's pod was deleted"},
		},
		"stopped":       {view: view{samplePod(exits(143, "Error", ""), deletes), true}, stopped: true, want: executor.Exit{Code: -1, Signal: "SIGTERM"}},
		"vanished":      {view: view{samplePod(runs(), deletes), true}, want: executor.Exit{Code: -1, Lost: true, Reason: workflow.ReasonEvicted, Detail: "the job's pod was deleted"}},
		"never existed": {view: view{gone: true}, want: executor.Exit{Code: -1, Lost: true, Detail: "the job's pod is missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, done := ended(test.view, test.stopped)
			if done == test.running {
				t.Fatalf("done: %t", done)
			}
			if (got.Result != nil) != test.result {
				t.Errorf("result %+v", got.Result)
			}
			got.FinishedAt, got.Result = time.Time{}, nil
			if got != test.want {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func TestStartOf(t *testing.T) {
	initial := func(name string, state corev1.ContainerState) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, corev1.ContainerStatus{Name: name, Image: "other", State: state})
		}
	}
	pending := waits("PodInitializing", "")
	for name, test := range map[string]struct {
		view    view
		started bool
		failure string // part of the message
		problem string // part of the text
		reason  workflow.Reason
		at      string // the container whose output explains the failure
	}{
		"created":          {view: view{pod: samplePod(pending)}},
		"running":          {view: view{pod: samplePod(runs())}, started: true},
		"exited":           {view: view{pod: samplePod(exits(1, "Error", ""))}, started: true},
		"never created":    {view: view{pod: samplePod(exits(137, "ContainerStatusUnknown", "not located"), deletes)}},
		"lost":             {view: view{pod: samplePod(exits(137, "ContainerStatusUnknown", "not located"), created)}, started: true},
		"exited and gone":  {view: view{samplePod(exits(1, "Error", ""), deletes), true}, started: true},
		"start error":      {view: view{pod: samplePod(exits(128, "StartError", "exec format error"))}, failure: "exec format error", reason: workflow.ReasonLaunch},
		"missing image":    {view: view{pod: samplePod(waits("ErrImagePull", "not found"))}, problem: "registry.example.com/image cannot be pulled (ErrImagePull): not found", reason: workflow.ReasonImage},
		"invalid image":    {view: view{pod: samplePod(waits("InvalidImageName", ""))}, problem: "cannot be used (InvalidImageName)", reason: workflow.ReasonImage},
		"missing config":   {view: view{pod: samplePod(waits("CreateContainerConfigError", `secret "x" not found`))}, problem: `secret "x" not found`, reason: workflow.ReasonLaunch},
		"init image":       {view: view{pod: samplePod(pending, initial("template", waits("ImagePullBackOff", "denied")))}, problem: "The image other cannot be pulled (ImagePullBackOff): denied", reason: workflow.ReasonImage},
		"init failed":      {view: view{pod: samplePod(pending, initial("template", exits(3, "Error", "")), fails("", ""))}, failure: "template exited with code 3", reason: workflow.ReasonLaunch, at: "template"},
		"init not started": {view: view{pod: samplePod(pending, initial("template", exits(128, "StartError", "no such file")), fails("", ""))}, failure: "no such file", reason: workflow.ReasonLaunch},
		"evicted":          {view: view{pod: samplePod(pending, fails("Evicted", "low on disk"))}, failure: "Evicted: low on disk", reason: workflow.ReasonEvicted},
		"refused by node":  {view: view{pod: samplePod(pending, fails("OutOfcpu", "not enough"))}, failure: "OutOfcpu: not enough", reason: workflow.ReasonEvicted},
		"deleted":          {view: view{samplePod(pending, deletes), true}, failure: "was deleted before it started", reason: workflow.ReasonEvicted},
		"unschedulable": {view: view{pod: &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available"},
		}}}}, problem: "waits for a node: 0/1 nodes are available"},
	} {
		t.Run(name, func(t *testing.T) {
			got := startOf(test.view)
			message, reason := "", got.problem.reason
			if got.failure != nil {
				message, reason = got.failure.Message, got.failure.Reason
			}
			if got.started != test.started || !strings.Contains(message, test.failure) || !strings.Contains(got.problem.text, test.problem) ||
				(message == "") != (test.failure == "") || (got.problem.text == "") != (test.problem == "") || reason != test.reason || got.container != test.at {
				t.Errorf("got started %t, failure %q, problem %q, reason %q, container %q", got.started, message, got.problem.text, reason, got.container)
			}
		})
	}
}
