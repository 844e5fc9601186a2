package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/store"
)

const (
	// databaseEvery is the interval between two checks that this server may use the database.
	databaseEvery   = 5 * time.Second
	databaseTimeout = 5 * time.Second

	// stopMargin is the time that stopping takes in addition to the shutdown timeout.
	stopMargin = 15 * time.Second
)

// watchDatabase returns an error as soon as this server must not use the database any more: a newer server has upgraded
// it, or while this one stood still, its secrets were discarded. It ignores other errors of the database, which other
// callers report.
func (s *Server) watchDatabase(ctx context.Context) error {
	return every(ctx, databaseEvery, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
		defer cancel()
		err := s.db.CheckProgram(ctx)
		if old, ok := errors.AsType[*store.OldProgramError](err); ok {
			return old
		}
		if err := s.secrets.CheckStored(ctx); errors.Is(err, keyring.ErrNotStored) {
			return err
		}
		return nil
	})
}

// stayPresent records that this server uses its master key, until ctx is canceled. A server that records nothing does
// not keep the operator from retiring the key, and works otherwise.
func (s *Server) stayPresent(ctx context.Context) {
	host, _ := os.Hostname() // the process is named in any case
	name := strings.TrimSpace(fmt.Sprintf("%s process %d", host, os.Getpid()))
	s.secrets.StayPresent(ctx, rand.Text(), name, func(err error) {
		s.log.WithError(err).Warn("the servers' database does not show which master key this server uses")
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
