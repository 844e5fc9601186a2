package database

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// migrate updates the schema. With PostgreSQL, an advisory lock serializes servers that start at
// the same time.
func migrate(ctx context.Context, e engine, db *sql.DB, files fs.FS) error {
	dialect := goose.DialectSQLite3
	// Each domain has its own range of version numbers, so the number of a new migration can be
	// lower than that of an applied one.
	opts := []goose.ProviderOption{
		goose.WithAllowOutofOrder(true),
		goose.WithDisableGlobalRegistry(true),
		goose.WithLogger(goose.NopLogger()),
	}
	if e == postgresEngine {
		dialect = goose.DialectPostgres
		locker, err := lock.NewPostgresSessionLocker()
		if err != nil {
			return fmt.Errorf("preparing the migration lock: %w", err)
		}
		opts = append(opts, goose.WithSessionLocker(locker))
	}
	provider, err := goose.NewProvider(dialect, db, files, opts...)
	if err != nil {
		return fmt.Errorf("reading the migrations: %w", err)
	}
	if err := refuseNewer(ctx, e, db, provider.ListSources()); err != nil {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("updating the schema: %w", err)
	}
	return nil
}

// refuseNewer returns an error if the schema is newer than this program. Newer servers could
// misinterpret the rows that this program writes.
func refuseNewer(ctx context.Context, e engine, db *sql.DB, known []*goose.Source) error {
	exists := "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = $1"
	if e == postgresEngine {
		exists = "SELECT COUNT(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename = $1"
	}
	var tables int
	if err := db.QueryRowContext(ctx, exists, goose.DefaultTablename).Scan(&tables); err != nil {
		return fmt.Errorf("reading the schema's version: %w", err)
	}
	if tables == 0 {
		return nil // a new database
	}
	mine := map[int64]bool{0: true}
	newest, found := int64(0), int64(0)
	for _, s := range known {
		mine[s.Version] = true
		newest = max(newest, s.Version)
	}
	rows, err := db.QueryContext(ctx, "SELECT version_id FROM goose_db_version")
	if err != nil {
		return fmt.Errorf("reading the schema's version: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var version int64
		if err := rows.Scan(&version); err != nil {
			return fmt.Errorf("reading the schema's version: %w", err)
		}
		if !mine[version] {
			found = max(found, version)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("reading the schema's version: %w", err)
	}
	if found == 0 {
		return nil
	}
	return fmt.Errorf("a newer workflow-server has upgraded the database: its schema has version %d, and this program supports schemas up to version %d; "+
		"start the newer workflow-server, or restore a backup from before its first start", found, newest)
}
