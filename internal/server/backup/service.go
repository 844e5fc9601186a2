package backup

import (
	"context"
	"sync"

	"workflowagent/internal/server/fault"
)

// Service writes the backups of an installation, one at a time, and records them in its database.
type Service struct {
	src  Source
	plan Plan

	mu      sync.Mutex
	running bool
	done    Progress
}

// New returns a service that backs up an installation. The caller must start [Service.Run] on one of the servers that
// share the database if the plan has a schedule.
func New(src Source, plan Plan) *Service { return &Service{src: src, plan: plan} }

// Write writes a backup; see [Write].
func (s *Service) Write(ctx context.Context, q Request) (Result, error) {
	s.mu.Lock()
	busy := s.running
	if !busy {
		s.running, s.done = true, Progress{}
	}
	s.mu.Unlock()
	if busy {
		return Result{}, fault.Conflict("the server is writing another backup: wait until it has ended")
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running = false
	}()
	r, err := Write(ctx, s.src, q, s.report)
	if err != nil {
		return Result{}, err
	}
	s.src.Log.WithField("path", r.Path).Info("wrote a backup")
	r.Unrecorded = s.recordSuccess(ctx, r)
	return r, nil
}

func (s *Service) report(p Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = p
}

// Progress returns how much of the running backup has been written, or of the last one.
func (s *Service) Progress() (p Progress, running bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done, s.running
}
