package database

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/retry"
)

const postgresChannel = "workflow_server"

// Notify delivers payload to the subscribers of channel on all servers that share the database. It
// does so after this transaction has committed, or after a commit whose outcome is unknown. PostgreSQL
// limits a payload to 8000 bytes.
func (tx *Tx) Notify(channel, payload string) {
	if !tx.db.Shared() {
		tx.OnCommit(func() { tx.db.bus.publish(channel, payload) })
		return
	}
	if notice := channel + "\n" + payload; !slices.Contains(tx.notices, notice) {
		tx.notices = append(tx.notices, notice)
	}
}

// Subscribe calls fn with the payload of every notification on channel until cancel is called. fn
// must not block and must not use the database. An empty payload means that the connection was lost
// and notifications might have been missed, so fn must check for changes itself.
func (db *DB) Subscribe(channel string, fn func(payload string)) (cancel func()) {
	return db.bus.subscribe(channel, fn)
}

type bus struct {
	mu   sync.RWMutex
	next int
	subs map[int]subscription

	stop context.CancelFunc // nil without PostgreSQL
	done chan struct{}
}

type subscription struct {
	channel string
	fn      func(string)
}

func newBus() *bus { return &bus{subs: map[int]subscription{}} }

func (b *bus) subscribe(channel string, fn func(string)) func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := b.next
	b.next++
	b.subs[id] = subscription{channel, fn}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.subs, id)
	}
}

func (b *bus) publish(channel, payload string) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, s := range b.subs {
		if s.channel == channel {
			s.fn(payload)
		}
	}
}

func (b *bus) missed() {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, s := range b.subs {
		s.fn("")
	}
}

// listen starts a goroutine that receives the notifications of all servers on its own connection.
func (b *bus) listen(cfg *pgx.ConnConfig, answer time.Duration, log *logrus.Entry) {
	ctx, cancel := context.WithCancel(context.Background())
	b.stop, b.done = cancel, make(chan struct{})
	go func() {
		defer close(b.done)
		again := retry.Policy{First: time.Second, Max: 15 * time.Second}
		for failures := 0; ; failures++ {
			began := time.Now()
			err := b.receive(ctx, cfg, answer)
			if ctx.Err() != nil {
				return
			}
			if time.Since(began) > time.Minute {
				failures = 0
			}
			log.WithError(err).Warn("lost the database connection for notifications; reconnecting")
			if again.Wait(ctx, failures, nil) != nil {
				return
			}
		}
	}()
}

func (b *bus) receive(ctx context.Context, cfg *pgx.ConnConfig, answer time.Duration) error {
	conn, err := pgx.ConnectConfig(ctx, cfg.Copy())
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		conn.Close(closing) //nolint:errcheck // the connection is closed regardless of the error
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+postgresChannel); err != nil {
		return err
	}
	b.missed()
	for {
		// Silence can also mean that the connection has lost the database.
		waiting, cancel := context.WithTimeout(ctx, answer/2)
		n, err := conn.WaitForNotification(waiting)
		quiet := waiting.Err() != nil && ctx.Err() == nil
		cancel()
		if err != nil && quiet && !conn.IsClosed() {
			if err := conn.Ping(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if n.Payload == missedNotice {
			b.missed()
			continue
		}
		channel, payload, _ := strings.Cut(n.Payload, "\n")
		b.publish(channel, payload)
	}
}

func (b *bus) close() {
	if b.stop != nil {
		b.stop()
		<-b.done
	}
}
