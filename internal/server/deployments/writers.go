package deployments

import (
	"time"

	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/recent"
	"workflowagent/internal/server/store"
)

// writerAge is the time for which the check that a claim may deliver log remains valid. Another
// server can end or requeue the job in the meantime. The log of a superseded claim is then stored in
// streams that no other claim uses. It is less than measuredAfter.
const writerAge = 20 * time.Second

// writers remembers the claims whose jobs ran a short time ago, because each job delivers log
// several times per second. The keys are the ids of the jobs.
type writers struct{ recent.Map[writer] }

type writer struct {
	epoch int64
	steps int
}

// steps returns the number of steps of a job that the caller's claim ran a short time ago.
func (w *writers) steps(p identity.Principal, jobID string) (n int, ok bool) {
	if p.Kind != identity.KindRunner || p.JobID != jobID {
		return 0, false
	}
	known, ok := w.Get(jobID)
	return known.steps, ok && known.epoch == p.Epoch
}

// add remembers the current claim of a job that was read at a time. [writers.Forget] must be called when the job
// ends or is requeued.
func (w *writers) add(job store.Job, read time.Time) {
	w.Put(job.ID, writer{job.Epoch, len(job.Steps)}, read)
}
