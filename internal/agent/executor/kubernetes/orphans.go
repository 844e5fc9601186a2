package kubernetes

import (
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"workflowagent/internal/agent/executor/kubernetes/podspec"
	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
)

const (
	// orphanTime is how long the ended pod of a job whose agent is gone remains.
	orphanTime = time.Hour
	// unreportedTime replaces orphanTime for a job whose result the server may not have. Its agent
	// may return and deliver it until then.
	unreportedTime = 24 * time.Hour
	// orphanPause is the time between the searches for such pods.
	orphanPause = 10 * time.Minute
)

// removeOrphans regularly deletes the ended pods that other agents left in the namespace. An agent in
// a pod loses its journal together with the pod, so its successor does not know its jobs.
func (e *Executor) removeOrphans(ctx context.Context, namespace, owner string) {
	for retry.Sleep(ctx, retry.Spread(e.opts.orphanPause)) == nil {
		pods, err := e.client.pods(ctx, namespace, podspec.LabelName+"="+podspec.NameValue+","+podspec.LabelOwner+"!="+podspec.LabelValue(owner), 0)
		if err != nil {
			e.opts.Log.WithError(err).Debug("listing the pods of other agents failed; retrying")
			continue
		}
		for _, pod := range pods {
			if !e.orphaned(&pod, time.Now()) {
				continue
			}
			log := e.opts.Log.WithField("pod", pod.Name)
			if err := e.client.deletePod(ctx, &pod, killGrace); err != nil {
				log.WithError(err).Warn("deleting the ended pod of an agent that is gone failed; retrying")
				continue
			}
			log.Info("deleted the ended pod of a job whose agent did not remove it")
		}
	}
}

// orphaned reports whether a pod belongs to a job that ended so long ago that its agent must be gone.
// Deleting the pod also deletes its Secret. A pod that is not exactly one of a job, such as a copy for
// debugging, is never orphaned.
func (e *Executor) orphaned(pod *corev1.Pod, now time.Time) bool {
	epoch, err := strconv.ParseInt(pod.Annotations[podspec.LabelEpoch], 10, 64)
	if err != nil || pod.Name != podspec.Name(pod.Annotations[podspec.LabelOwner], pod.Annotations[podspec.LabelJob], epoch) {
		return false
	}
	// Containers of a template may outlive the job's; the phase is final when all have ended.
	main := mainStatus(pod)
	if pod.DeletionTimestamp != nil || !final(pod) || main == nil || main.State.Terminated == nil || main.State.Terminated.FinishedAt.Year() <= 1970 {
		return false
	}
	exit := exitOf(main.State.Terminated)
	wait := unreportedTime
	if exit.Code == protocol.ExitNoLeave || exit.Code == protocol.ExitNoLaunch || exit.Result != nil && exit.Result.Reported {
		wait = e.opts.orphanTime
	}
	if pod.Labels[podspec.LabelDebug] == "true" {
		wait = max(wait, unreportedTime, e.opts.DebugPodTTL)
	}
	return now.Sub(main.State.Terminated.FinishedAt.Time) > wait
}
