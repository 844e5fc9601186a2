package store

import "context"

// MigrateAgain brings the schema of an open PostgreSQL database up to date once
// more, as another server that starts does.
func MigrateAgain(ctx context.Context, db *DB) error { return migrate(ctx, db.engine, db.pool) }

// Exec runs a statement.
func (tx *Tx) Exec(query string, args ...any) error {
	_, err := tx.exec(query, args...)
	return err
}
