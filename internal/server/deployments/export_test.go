package deployments

import (
	"context"
	"sync/atomic"

	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/store/blob"
)

// Sweep records that the server is up and checks all timers once, for tests that control time.
func (s *Service) Sweep(ctx context.Context) error {
	if err := s.beat(ctx); err != nil {
		return err
	}
	return s.sweep(ctx)
}

// CountLogReads returns a counter of log reads, starting at 0.
func (s *Service) CountLogReads() *atomic.Int64 {
	counting := &countingBlobs{Store: s.db.Blobs()}
	s.logs = joblog.New(counting, s.db.Shared(), s.opts.LogLimit, s.opts.LogSync, s.log)
	return &counting.reads
}

type countingBlobs struct {
	blob.Store
	reads atomic.Int64
}

func (b *countingBlobs) ReadAt(ctx context.Context, key string, offset int64, p []byte) (int, error) {
	b.reads.Add(1)
	return b.Store.ReadAt(ctx, key, offset, p)
}

// HeldPolls returns the number of polls that wait for a job and are not being served.
func (s *Service) HeldPolls() int {
	s.dispatcher.mu.Lock()
	defer s.dispatcher.mu.Unlock()
	n := 0
	for _, l := range s.dispatcher.lines {
		if !l.running {
			n += len(l.waiters)
		}
	}
	return n
}
