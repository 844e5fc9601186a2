package dispatch_test

import (
	"errors"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/vcs"
)

// TestAttemptsAreCountedByCause checks that an event that waited long for its forge still has all
// attempts for failures of other kinds.
func TestAttemptsAreCountedByCause(t *testing.T) {
	away := errors.New("no route to host")
	for name, failure := range map[string]func(s *site){
		"the server fails": func(s *site) {
			s.forge.set(func() { s.forge.err, s.forge.onHead = nil, func() { panic("a busy database") } })
		},
		"the forge does not show it yet": func(s *site) { s.forge.set(func() { s.forge.err = vcs.ErrNotFound }) },
		"a server of the forge lags": func(s *site) {
			s.forge.set(func() { s.forge.err, s.forge.refs["refs/heads/feature-7"] = nil, one })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, storetest.SQLite(t), connected())
			st := s.stack("dev", previews)
			s.poll()
			s.forge.set(func() { s.forge.err = away })
			s.put(open(7, two))
			for range 12 {
				s.retry()
			}
			failure(s)
			s.retry()
			if s.waiting() != 1 {
				t.Fatalf("the event ended after one such failure: %s", s.reason(st))
			}
			s.forge.set(func() { s.forge.err, s.forge.onHead = nil, nil; delete(s.forge.refs, "refs/heads/feature-7") })
			s.retry()
			s.wantDeployed(st, "preview 2")
		})
	}
}

// TestServerFailsOften checks that an event whose processing keeps failing ends.
func TestServerFailsOften(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), connected())
	st := s.stack("dev", previews)
	s.poll()
	s.forge.set(func() { s.forge.onHead = func() { panic("a defect") } })
	s.put(open(7, two))
	for n := 1; n <= 5; n++ {
		if ended := s.waiting() == 0; ended != (n == 5) || s.reason(st) != vcs.ReasonFailed {
			t.Fatalf("after %d attempts: ended %t, reason %s", n, ended, s.reason(st))
		}
		s.retry()
	}
}
