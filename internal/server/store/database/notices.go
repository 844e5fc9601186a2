package database

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/retry"
)

const (
	// maxNotices bounds the notices that wait to be sent.
	maxNotices = 10_000
	// noticeTime bounds an attempt to send notices.
	noticeTime = 10 * time.Second
	// missedNotice makes all subscribers check for changes themselves.
	missedNotice = ""
)

// notices sends the notices of this server's writes to all servers, together and each once. A NOTIFY in a
// write would hold a lock of the whole database cluster until the commit is durable, so notices follow the
// commit in their own transactions.
type notices struct {
	db  *DB
	log *logrus.Entry

	mu      sync.Mutex
	waiting map[string]bool
	wake    chan struct{} // capacity 1

	stop context.CancelFunc
	done chan struct{}
}

func newNotices(db *DB, log *logrus.Entry) *notices {
	ctx, cancel := context.WithCancel(context.Background())
	n := &notices{db: db, log: log, waiting: map[string]bool{}, wake: make(chan struct{}, 1), stop: cancel, done: make(chan struct{})}
	go n.loop(ctx)
	return n
}

// send sends notices soon. It does not wait for the database.
func (n *notices) send(list []string) {
	if len(list) == 0 {
		return
	}
	n.mu.Lock()
	for _, notice := range list {
		n.waiting[notice] = true
	}
	if len(n.waiting) > maxNotices {
		n.waiting = map[string]bool{missedNotice: true}
	}
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// close sends the waiting notices. No write may be in progress.
func (n *notices) close() {
	n.stop()
	<-n.done
}

func (n *notices) loop(ctx context.Context) {
	defer close(n.done)
	again := retry.Policy{First: 20 * time.Millisecond, Max: 5 * time.Second}
	for failures := 0; ; {
		select {
		case <-n.wake:
		case <-ctx.Done():
			_ = n.flush()
			return
		}
		if err := n.flush(); err != nil {
			n.log.WithError(err).Warn("notifying the servers failed; trying again")
			_ = again.Wait(ctx, failures, nil) // after the end of ctx, the last attempt follows
			failures++
			continue
		}
		failures = 0
	}
}

// flush sends the waiting notices. They keep waiting after an error.
func (n *notices) flush() error {
	n.mu.Lock()
	list := slices.Sorted(maps.Keys(n.waiting))
	clear(n.waiting)
	n.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), noticeTime)
	defer cancel()
	_, err := n.db.pool.ExecContext(ctx, "SELECT pg_notify($1, notice) FROM unnest($2::text[]) AS notice", postgresChannel, list)
	if refused(err) {
		list = []string{missedNotice} // one of them is too long
	}
	if err != nil {
		n.send(list)
	}
	return err
}
