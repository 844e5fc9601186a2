package kubernetes

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"workflowagent/internal/agent/executor/kubernetes/podspec"
	"workflowagent/internal/dev/executortest/program"
)

func TestOrphaned(t *testing.T) {
	e := &Executor{opts: Options{orphanTime: orphanTime}}
	const reported = `{"status":"succeeded","reported":true}`
	for name, test := range map[string]struct {
		state  corev1.ContainerState
		change func(*corev1.Pod)
		age    time.Duration
		want   bool
	}{
		"reported":              {state: exits(0, "Completed", reported), age: orphanTime + time.Minute, want: true},
		"reported recently":     {state: exits(0, "Completed", reported), age: orphanTime - time.Minute},
		"reported failure":      {state: exits(255, "Error", `{"status":"failed","reported":true}`), age: orphanTime + time.Minute, want: true},
		"no leave":              {state: exits(65, "Error", ""), age: orphanTime + time.Minute, want: true},
		"not reported":          {state: exits(0, "Completed", `{"status":"succeeded"}`), age: unreportedTime - time.Minute},
		"not reported for days": {state: exits(0, "Completed", `{"status":"succeeded"}`), age: unreportedTime + time.Minute, want: true},
		"killed":                {state: exits(137, "OOMKilled", ""), age: unreportedTime - time.Minute},
		"running":               {state: runs(), age: 100 * unreportedTime},
		"waiting":               {state: waits("ImagePullBackOff", ""), age: 100 * unreportedTime},
		"other container runs": {
			state:  exits(0, "Completed", reported),
			change: func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning },
			age:    100 * unreportedTime,
		},
		"kept for debugging": {
			state:  exits(0, "Completed", reported),
			change: func(pod *corev1.Pod) { pod.Labels = map[string]string{podspec.LabelDebug: "true"} },
			age:    unreportedTime - time.Minute,
		},
		"copy": {
			state:  exits(0, "Completed", reported),
			change: func(pod *corev1.Pod) { pod.Name += "-copy" },
			age:    100 * unreportedTime,
		},
		"deleted": {state: exits(0, "Completed", reported), change: deletes, age: 100 * unreportedTime},
	} {
		t.Run(name, func(t *testing.T) {
			pod := samplePod(test.state, func(pod *corev1.Pod) {
				pod.Name = podspec.Name("owner", "job", 1)
				pod.Annotations = map[string]string{podspec.LabelOwner: "owner", podspec.LabelJob: "job", podspec.LabelEpoch: "1"}
				pod.Status.Phase = corev1.PodSucceeded
				if test.change != nil {
					test.change(pod)
				}
			})
			if got := e.orphaned(pod, finished.Add(test.age)); got != test.want {
				t.Errorf("orphaned is %t, want %t", got, test.want)
			}
		})
	}
}

// TestRemovesOrphans checks that an agent with exactly the rights of the installation's Role removes
// the ended pod of an agent that is gone, with its Secret, and leaves the running one.
func TestRemovesOrphans(t *testing.T) {
	s := newSpace(t)
	gone := s.open(t, Options{})
	start := func(job string, actions ...program.Action) string {
		spec := s.spec()
		spec.JobID, spec.Epoch, spec.Owner = job, 1, "gone"
		h, err := gone.Prepare(t.Context(), spec, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		if err := gone.Start(t.Context(), h, launchDocument(t, actions...)); err != nil {
			t.Fatal(err)
		}
		if err := gone.AwaitStart(t.Context(), h, func(string) {}); err != nil {
			t.Fatal(err)
		}
		return jobOf(t, h).Name
	}
	running, ended := start("running", program.Action{Forever: true}), start("ended", program.Action{Exit: new(65)})
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	e := s.open(t, Options{Config: s.agent(), orphanTime: time.Nanosecond, orphanPause: 200 * time.Millisecond})
	defer e.Close()
	if _, err := e.List(t.Context(), "successor"); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(2 * time.Minute)
	for len(s.objects(ended)) > 0 {
		select {
		case <-deadline:
			t.Fatalf("the ended job still has %v", s.objects(ended))
		case <-time.After(100 * time.Millisecond):
		}
	}
	if left := s.objects(running); len(left) != 2 {
		t.Errorf("the running job has only %v", left)
	}
}
