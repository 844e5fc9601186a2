package runner

import (
	"context"
	"sync"

	"workflowagent/internal/workflow"
)

// stopper decides whether and how the job stops early.
//
//	running ──interrupt──> interrupted ──kill──> killed
//
// An interrupt requests that the running step exit. A kill forces it to exit. The reason of the
// first request is kept. Repeated requests have no effect, because clients retry, and a second
// SIGINT would make pulumi abandon its work.
type stopper struct {
	interrupted chan struct{} // closed by the first interrupt
	killed      chan struct{} // closed by the first kill
	hurried     context.Context
	// hurry shortens the delivery of the log and the result, because the container is about to be
	// removed.
	hurry context.CancelFunc

	mu       sync.Mutex
	why      workflow.Reason
	isKilled bool
}

func newStopper() *stopper {
	s := &stopper{interrupted: make(chan struct{}), killed: make(chan struct{})}
	s.hurried, s.hurry = context.WithCancel(context.Background())
	return s
}

// interrupt requests that the job stop, and reports whether this was the first request.
func (s *stopper) interrupt(why workflow.Reason) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why != workflow.ReasonNone {
		return false
	}
	s.why = why
	close(s.interrupted)
	return true
}

func (s *stopper) kill(why workflow.Reason) {
	s.interrupt(why)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isKilled {
		s.isKilled = true
		close(s.killed)
	}
}

// reason returns the reason why the job must stop, and reports whether it must.
func (s *stopper) reason() (workflow.Reason, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why, s.why != workflow.ReasonNone
}

func describeStop(reason workflow.Reason) string {
	switch reason {
	case workflow.ReasonCancelled:
		return "the deployment was cancelled"
	case workflow.ReasonTimeout:
		return "the timeout expired"
	case workflow.ReasonAgentStopped:
		return "the agent was stopped"
	case workflow.ReasonEvicted:
		return "the job's container or host is shutting down"
	}
	return "the job was stopped (" + string(reason) + ")"
}
