package database

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// keepalive detects a database machine that has disappeared while a connection is idle.
	keepalive = 15 * time.Second
	dialTime  = 15 * time.Second
)

// connectTo returns a configuration for the connections of a running server.
//
// A connection ends if the database sends nothing for a time although it should: proxies can lose the
// database and keep the connection of the client, and most reads have no other time limit.
//
// An address can name several hosts, and a name can lead to another host after a failover. A standby
// does not know the newest transactions, so the server must not read from it, nor ask it what became of
// a write.
func connectTo(cfg *pgx.ConnConfig, answer time.Duration) *pgx.ConnConfig {
	cfg = cfg.Copy()
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, dialTime) // then follows the next host
	dialer := net.Dialer{KeepAlive: keepalive, Timeout: cfg.ConnectTimeout}
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &impatient{Conn: conn, limit: answer}, nil
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "workflow-server" // in the statistics and the log of the database
	}
	if cfg.ValidateConnect == nil {
		cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	return cfg
}

const committingKey = "committing"

// keepCommits prevents the driver from canceling a commit on a connection that it opens with cfg: to a commit
// that waits for a synchronous standby, the database would answer that it has committed. The driver dials again
// in order to cancel a statement.
func keepCommits(_ context.Context, cfg *pgx.ConnConfig) error {
	dial, committing := cfg.DialFunc, &atomic.Bool{}
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if committing.Load() {
			return nil, errors.New("a commit must not be canceled")
		}
		return dial(ctx, network, address)
	}
	cfg.AfterConnect = func(_ context.Context, conn *pgconn.PgConn) error {
		conn.CustomData()[committingKey] = committing
		return nil
	}
	return nil
}

// impatient is a connection on which each read and each write takes at most limit. The driver reads only
// while it waits for an answer.
type impatient struct {
	net.Conn
	limit time.Duration

	mu sync.Mutex
	// read and write are the deadlines that the driver has set.
	read, write time.Time
}

func (c *impatient) until(driver time.Time) time.Time {
	own := time.Now().Add(c.limit)
	if driver.IsZero() || own.Before(driver) {
		return own
	}
	return driver
}

// Read implements [net.Conn].
func (c *impatient) Read(p []byte) (int, error) {
	c.mu.Lock()
	err := c.Conn.SetReadDeadline(c.until(c.read))
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write implements [net.Conn].
func (c *impatient) Write(p []byte) (int, error) {
	c.mu.Lock()
	err := c.Conn.SetWriteDeadline(c.until(c.write))
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// SetDeadline implements [net.Conn].
func (c *impatient) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read, c.write = t, t
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline implements [net.Conn].
func (c *impatient) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = t
	return c.Conn.SetReadDeadline(t)
}

// SetWriteDeadline implements [net.Conn].
func (c *impatient) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write = t
	return c.Conn.SetWriteDeadline(t)
}
