package database

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	sqlite3 "modernc.org/sqlite/lib"

	"workflowagent/internal/retry"
)

// errRolledBack reports that PostgreSQL has answered COMMIT with a rollback.
var errRolledBack = errors.New("the database has rolled back the transaction")

// refused reports whether err is PostgreSQL's answer that it has not committed a transaction. A session
// that is terminated, and a lost connection, say nothing about a COMMIT that they interrupt.
func refused(err error) bool {
	if errors.Is(err, errRolledBack) {
		return true
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || cmp.Or(e.SeverityUnlocalized, e.Severity) != "ERROR" {
		return false
	}
	// 08 are errors of connections, which poolers report with the severity ERROR. 57P are shutdowns.
	return !strings.HasPrefix(e.Code, "08") && !strings.HasPrefix(e.Code, "57P")
}

// refusedBySQLite reports whether err means that SQLite has not committed a transaction. A full disk is
// such an error: a write to the log has failed, and the mark that commits the transaction is the last.
// After other errors, such as those of a sync, the log can contain the whole transaction.
func refusedBySQLite(err error) bool {
	switch sqliteCode(err) & 0xff {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_CONSTRAINT:
		return true
	default:
		return false
	}
}

// committed is a result of pg_xact_status.
const committed = "committed"

// identity identifies a transaction on PostgreSQL.
type identity struct {
	xid string
	// life identifies the run of the database server, during which it does not use an id twice.
	life string
}

const lifeKey = "life"

// prepareConnection stores the run of the server with a connection. The start of the server does not
// change if the server restarts itself after a crash, but the start of its statistics does.
func prepareConnection(ctx context.Context, conn *pgx.Conn) error {
	results, err := conn.PgConn().Exec(ctx,
		"SELECT pg_postmaster_start_time()::text || ' ' || COALESCE(stats_reset::text, '') FROM pg_stat_bgwriter").ReadAll()
	if err != nil {
		return fmt.Errorf("preparing a database connection: %w", err)
	}
	if last := results[len(results)-1]; len(last.Rows) == 1 {
		conn.PgConn().CustomData()[lifeKey] = string(last.Rows[0][0])
	}
	return nil
}

func lifeOf(conn *pgx.Conn) string {
	life, _ := conn.PgConn().CustomData()[lifeKey].(string)
	return life
}

// outcome decides whether a transaction was committed whose COMMIT got no answer. It returns nil if the
// transaction was committed, and otherwise an error. The error is [ErrUnknown] unless the transaction
// has not been and will not be committed.
func (w *postgresWriter) outcome(t identity, lost error) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.timeouts.Outcome)
	defer cancel()
	again := retry.Policy{First: 20 * time.Millisecond, Max: 500 * time.Millisecond}
	for tries := 0; ; tries++ {
		status, err := w.status(ctx, t)
		switch {
		case err == nil && status == committed:
			return nil
		case err == nil && status == "aborted":
			return fmt.Errorf("the database has rolled back a transaction: %w", lost)
		case err != nil:
			lost = errors.Join(lost, err)
		}
		if ctx.Err() != nil || again.Wait(ctx, min(tries, 10), nil) != nil {
			return fmt.Errorf("%w: %w", ErrUnknown, lost)
		}
	}
}

// status returns the status of a transaction, as pg_xact_status does. It asks on a new connection,
// because those of the pool can be as dead as the transaction's.
func (w *postgresWriter) status(ctx context.Context, t identity) (string, error) {
	cfg := w.cfg.Copy()
	cfg.ConnectTimeout = w.timeouts.Outcome / 4 // leaves time for the next hosts if one is silent
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return "", err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		conn.Close(closing) //nolint:errcheck // the connection is closed regardless of the error
	}()
	if err := prepareConnection(ctx, conn); err != nil {
		return "", err
	}
	var status *string
	// A standby might still receive or replay the transaction; a pooler might have sent this query to one.
	err = conn.QueryRow(ctx, "SELECT CASE WHEN pg_is_in_recovery() THEN 'unknown' ELSE pg_xact_status($1::text::xid8) END", t.xid).Scan(&status)
	switch {
	// The id is in the future: a crash, or a failover to a standby that lagged, has lost the transaction.
	case postgresCode(err) == "22023":
		return "aborted", nil
	case err != nil:
		return "", err
	case status == nil:
		return "", nil // too long ago
	case *status != "aborted" && lifeOf(conn) != t.life:
		// After a crash, another transaction can have this id.
		return "", errors.New("the database server has restarted")
	case *status == committed:
		// If the connection was terminated, the transaction may not have reached a synchronous standby. This
		// commit, which follows it in the log, waits for the standby.
		_, err = conn.Exec(ctx, "SELECT pg_logical_emit_message(true, '', '')")
	}
	return *status, err
}
