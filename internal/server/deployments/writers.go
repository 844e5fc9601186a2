package deployments

import (
	"sync"
	"time"

	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// writerAge is the time for which the check that a claim may deliver log remains valid. Another
// server can end or requeue the job in the meantime. The log of a superseded claim is then stored in
// streams that no other claim uses. It is less than measuredAfter.
const writerAge = 20 * time.Second

// writers remembers the claims whose jobs ran a short time ago, because each job delivers log
// several times per second.
type writers struct {
	mu    sync.Mutex
	byJob map[string]writer
	swept time.Time
}

type writer struct {
	epoch int64
	steps int
	until time.Time
}

// steps returns the number of steps of a job that the caller's claim ran a short time ago.
func (w *writers) steps(p identity.Principal, jobID string) (n int, ok bool) {
	if p.Kind != identity.KindRunner || p.JobID != jobID {
		return 0, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	known, ok := w.byJob[jobID]
	return known.steps, ok && known.epoch == p.Epoch && time.Now().Before(known.until)
}

// add remembers the current claim of a job that was read at a time.
func (w *writers) add(job store.Job, read time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.swept) > writerAge {
		w.swept = time.Now()
		for id, known := range w.byJob {
			if w.swept.After(known.until) {
				delete(w.byJob, id)
			}
		}
	}
	if w.byJob == nil {
		w.byJob = map[string]writer{}
	}
	w.byJob[job.ID] = writer{job.Epoch, len(job.Steps), read.Add(writerAge)}
}

// forget must be called when a job ends or is requeued.
func (w *writers) forget(jobID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byJob, jobID)
}
