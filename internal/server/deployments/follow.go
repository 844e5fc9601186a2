package deployments

import (
	"context"
	"time"

	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/store"
)

const (
	// followPause is the minimum time between two looks at a followed log.
	followPause = 100 * time.Millisecond
	// followAlone is the interval of looks if no other server can receive lines.
	followAlone = 2 * time.Second
	// followJob is the interval at which the state of a followed job is read.
	followJob = 3 * time.Second
)

// LogSize is the size of one stream of a followed log.
type LogSize struct {
	Epoch  int64
	Stream int
	Lines  int64
	Done   bool // the job has finished
}

// FollowLog calls grew for each stream of a deployment's log, and again when the stream has grown.
// It returns after the end of the job, when ctx is done, or with an error of grew.
func (s *Service) FollowLog(ctx context.Context, st store.Stack, deploymentID string, grew func(LogSize) error) error {
	job, err := s.LogJob(ctx, st, deploymentID)
	if err != nil {
		return err
	}
	wake, leave := s.readers.join(job.ID)
	defer leave()
	interval := followAlone
	if s.db.Shared() {
		interval = logInterval
	}
	known := KnownSizes{}
	for read := time.Now(); ; {
		if err := known.Report(ctx, s.logs, job, grew); err != nil || job.Status.Final() {
			return err
		}
		if !pause(ctx, nil, followPause) || !pause(ctx, wake, interval) {
			return ctx.Err()
		}
		select {
		case <-s.stopping:
			return nil
		default:
		}
		if time.Since(read) > followJob {
			read = time.Now()
			if job, err = s.LogJob(ctx, st, deploymentID); err != nil {
				return err
			}
		}
	}
}

// pause waits for a time or until it is woken. It returns false when ctx is done.
func pause(ctx context.Context, wake <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
		return false
	}
	return true
}

// KnownSizes are the numbers of lines that the reader of a log knows, by epoch and stream.
type KnownSizes map[LogSize]int64

// Report calls grew for the streams of a job whose number of lines is not the known one.
func (known KnownSizes) Report(ctx context.Context, logs *joblog.Store, job store.Job, grew func(LogSize) error) error {
	counts, err := logs.Counts(ctx, job, job.Epoch)
	if err != nil {
		return err
	}
	for i, n := range counts {
		at := LogSize{Epoch: job.Epoch, Stream: i}
		if before, ok := known[at]; ok && before == n && !job.Status.Final() {
			continue
		}
		known[at] = n
		if err := grew(LogSize{Epoch: job.Epoch, Stream: i, Lines: n, Done: job.Status.Final()}); err != nil {
			return err
		}
	}
	return nil
}
