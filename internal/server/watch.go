package server

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/store"
)

const (
	// programEvery is the interval between two checks that this program may use the database.
	programEvery   = 10 * time.Second
	programTimeout = 5 * time.Second

	// stopMargin is the time that stopping takes in addition to the shutdown timeout.
	stopMargin = 15 * time.Second
)

// watchProgram returns an error as soon as a newer server has upgraded the database so that this one must
// not use it any more. It ignores other errors of the database, which other callers report.
func (s *Server) watchProgram(ctx context.Context) error {
	return every(ctx, programEvery, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, programTimeout)
		defer cancel()
		err := s.db.CheckProgram(ctx)
		if old, ok := errors.AsType[*store.OldProgramError](err); ok {
			return old
		}
		return nil
	})
}

const (
	pulseEvery = 10 * time.Second
	// pulseLimit is the time after which a request that is not answered means that the server hangs.
	pulseLimit = time.Minute
)

// pulse checks that the server handles requests, for the service manager's watchdog.
type pulse struct{ last atomic.Pointer[time.Time] }

// run handles a request at an interval, until ctx is canceled.
func (p *pulse) run(ctx context.Context, handler http.Handler) {
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/healthz", http.NoBody)
		if err != nil {
			return // the path is constant
		}
		r.RemoteAddr = "127.0.0.1:0"
		handler.ServeHTTP(unread{}, r)
		now := time.Now()
		p.last.Store(&now)
		if retry.Sleep(ctx, pulseEvery) != nil {
			return
		}
	}
}

func (p *pulse) alive() bool {
	last := p.last.Load()
	return last == nil || time.Since(*last) < pulseEvery+pulseLimit
}

// unread is a response that no client reads.
type unread struct{}

// Header implements [http.ResponseWriter].
func (unread) Header() http.Header { return http.Header{} }

// Write implements [http.ResponseWriter].
func (unread) Write(p []byte) (int, error) { return len(p), nil }

// WriteHeader implements [http.ResponseWriter].
func (unread) WriteHeader(int) {}
