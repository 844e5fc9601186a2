package issuer

import (
	"fmt"
	"sync"
	"time"
)

// A job can obtain perMinute tokens from each server in a minute.
const (
	perMinute = 30
	minute    = time.Minute
)

// limiter bounds the work that a single job can cause, because signatures are expensive.
type limiter struct {
	mu     sync.Mutex
	of     map[string]*window // by job
	pruned time.Time
}

type window struct {
	began time.Time
	used  int
}

// LimitError reports that a job has requested too many tokens.
type LimitError struct {
	Wait time.Duration // until the job can request another token
}

// Error returns the message for the client.
func (e *LimitError) Error() string {
	return fmt.Sprintf("the job has requested %d identity tokens within a minute; a token is valid for %d minutes", perMinute, int(Lifetime.Minutes()))
}

// Admit counts a job's request for a token. It returns a [*LimitError] if the job has requested too
// many.
func (s *Service) Admit(jobID string) error {
	if wait := s.limit.admit(jobID, time.Now()); wait > 0 {
		return &LimitError{wait}
	}
	return nil
}

func (l *limiter) admit(jobID string, now time.Time) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.pruned) >= minute {
		for id, w := range l.of {
			if now.Sub(w.began) >= minute {
				delete(l.of, id)
			}
		}
		l.pruned = now
	}
	w := l.of[jobID]
	if w == nil || now.Sub(w.began) >= minute {
		w = &window{began: now}
		l.of[jobID] = w
	}
	if w.used == perMinute {
		return minute - now.Sub(w.began)
	}
	w.used++
	return 0
}
