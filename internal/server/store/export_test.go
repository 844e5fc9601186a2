package store

import "context"

// MigrateAgain migrates an open database again, as another starting server does.
func MigrateAgain(ctx context.Context, db *DB) error { return migrate(ctx, db.engine, db.pool) }

// Exec runs a statement.
func (tx *Tx) Exec(query string, args ...any) error {
	_, err := tx.exec(query, args...)
	return err
}
