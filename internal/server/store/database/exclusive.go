package database

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"workflowagent/internal/retry"
)

const (
	// exclusiveRetry is the interval between a waiting server's attempts to acquire a lock.
	exclusiveRetry = 5 * time.Second
	// exclusiveCheck is the interval at which a server verifies that it still holds its locks.
	exclusiveCheck = 5 * time.Second
)

// Exclusive runs work on only one of the servers that share a database. It first acquires the lock
// with the given name. It cancels the context of work when it loses the lock. With SQLite, which
// has only one server, Exclusive runs work immediately.
func (db *DB) Exclusive(ctx context.Context, name string, work func(context.Context) error) error {
	if db.session == nil {
		return work(ctx)
	}
	working, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	for {
		got, err := db.session.try(ctx, name, lose)
		if err != nil {
			return fmt.Errorf("acquiring a database lock: %w", err)
		}
		if got {
			break
		}
		if err := retry.Sleep(ctx, retry.Spread(exclusiveRetry)); err != nil {
			return err
		}
	}
	defer db.session.release(ctx, name)
	return work(working)
}

// session holds the locks of a server's exclusive work, all on one connection, because a lock belongs to
// the connection on which it was acquired.
type session struct {
	cfg *pgx.ConnConfig

	mu   sync.Mutex
	conn *pgx.Conn                          // nil until it is needed
	held map[string]context.CancelCauseFunc // ends the work that holds a lock, by the lock's name

	stop context.CancelFunc
	done chan struct{}
}

func newSession(cfg *pgx.ConnConfig) *session {
	cfg = cfg.Copy()
	cfg.ConnectTimeout = exclusiveCheck / 4 // leaves time for the next hosts if one is silent
	ctx, cancel := context.WithCancel(context.Background())
	s := &session{cfg: cfg, held: map[string]context.CancelCauseFunc{}, stop: cancel, done: make(chan struct{})}
	go s.watch(ctx)
	return s
}

// watch verifies that the connection works, and closes it when ctx ends.
func (s *session) watch(ctx context.Context) {
	defer close(s.done)
	for retry.Sleep(ctx, exclusiveCheck) == nil {
		s.mu.Lock()
		if s.conn != nil {
			_ = s.run(ctx, func(ctx context.Context) error { return s.conn.Ping(ctx) })
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose(ErrClosed)
}

func (s *session) close() {
	s.stop()
	<-s.done
}

// try acquires a lock unless another server or other work of this server holds it. lose is called when the
// lock is lost.
func (s *session) try(ctx context.Context, name string, lose context.CancelCauseFunc) (got bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[name] != nil { // the session would get it again
		return false, nil
	}
	err = s.run(ctx, func(ctx context.Context) error {
		if s.conn == nil {
			conn, err := pgx.ConnectConfig(ctx, s.cfg.Copy())
			if err != nil {
				return err
			}
			s.conn = conn
		}
		return s.conn.QueryRow(ctx, "SELECT pg_try_advisory_lock(hashtextextended($1, 0))", "exclusive "+name).Scan(&got)
	})
	if got {
		s.held[name] = lose
	}
	return got, err
}

func (s *session) release(ctx context.Context, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[name] == nil {
		return // lost
	}
	delete(s.held, name)
	_ = s.run(ctx, func(ctx context.Context) error {
		_, err := s.conn.Exec(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", "exclusive "+name)
		return err
	})
}

// run runs do with a bounded context. The end of one caller's context must not close the connection, which
// holds the locks of others.
func (s *session) run(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exclusiveCheck)
	defer cancel()
	err := do(ctx)
	if err != nil {
		s.lose(err)
	}
	return err
}

// lose closes the connection and ends the work that holds its locks.
func (s *session) lose(err error) {
	if s.conn != nil {
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.conn.Close(closing) //nolint:errcheck // the connection is closed regardless of the error
		s.conn = nil
	}
	for name, lose := range s.held {
		lose(fmt.Errorf("lost the database session that holds the lock %s: %w", name, err))
	}
	clear(s.held)
}
