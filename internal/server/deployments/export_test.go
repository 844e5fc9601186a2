package deployments

import (
	"context"
	"sync/atomic"

	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/store"
)

// Sweep notes that the server is up and goes through all timers once, for tests
// that let time pass themselves.
func (s *Service) Sweep(ctx context.Context) error {
	if err := s.beat(ctx); err != nil {
		return err
	}
	return s.sweep(ctx)
}

// CountLogReads counts the reads of log from now on.
func (s *Service) CountLogReads() *atomic.Int64 {
	counting := &countingBlobs{Blobs: s.db.Blobs()}
	s.logs = joblog.New(counting, s.db.Shared(), s.opts.LogLimit, s.opts.LogSync, s.log)
	return &counting.reads
}

type countingBlobs struct {
	store.Blobs
	reads atomic.Int64
}

func (b *countingBlobs) ReadAt(ctx context.Context, key string, offset int64, limit int) ([]byte, error) {
	b.reads.Add(1)
	return b.Blobs.ReadAt(ctx, key, offset, limit)
}
