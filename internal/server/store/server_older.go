package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/retry"
)

// errOlderServer reports that a server runs which writes under the rules of an earlier version.
var errOlderServer = errors.New("an earlier version of workflow-server is running on this database: stop all servers that use it, and start this one again")

// renameBeats renames the table of beats, without which earlier versions cannot claim jobs or serve their
// callbacks. They do not lock the owners of the rows that they change. With PostgreSQL, where several servers
// can run, it first waits until such a server has missed its beats.
func renameBeats(ctx context.Context, tx *sql.Tx, shared bool) error {
	var at, every, now int64
	last := func() error {
		query := "SELECT COALESCE(MAX(beat_at), 0), COALESCE(MAX(every_us), 0), CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) FROM server_beat"
		return tx.QueryRowContext(ctx, query).Scan(&at, &every, &now)
	}
	if shared {
		if err := last(); err != nil {
			return fmt.Errorf("reading the last beat: %w", err)
		}
		seen := at
		wait := time.Duration(at+missedBeats*every-now) * time.Microsecond
		if err := retry.Sleep(ctx, min(wait, missedBeats*time.Duration(every)*time.Microsecond)); err != nil {
			return err
		}
		if err := last(); err != nil {
			return fmt.Errorf("reading the last beat: %w", err)
		}
		if at != seen {
			return errOlderServer
		}
	}
	if _, err := tx.ExecContext(ctx, "ALTER TABLE server_beat RENAME TO server_beats"); err != nil {
		return fmt.Errorf("renaming the table of beats: %w", err)
	}
	return nil
}
