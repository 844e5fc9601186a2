package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// migrate updates the schema, unless the options forbid it. With PostgreSQL, an advisory lock
// serializes servers that start at the same time.
func migrate(ctx context.Context, e engine, db *sql.DB, o Options) error {
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
	for version, step := range o.Steps {
		up := func(ctx context.Context, tx *sql.Tx) error { return step(ctx, tx, e == postgresEngine) }
		opts = append(opts, goose.WithGoMigrations(goose.NewGoMigration(version, &goose.GoFunc{RunTx: up}, nil)))
	}
	provider, err := goose.NewProvider(dialect, db, o.Migrations, opts...)
	if err != nil {
		return fmt.Errorf("reading the migrations: %w", err)
	}
	applied, err := schemaVersions(ctx, e, db)
	if err != nil {
		return fmt.Errorf("reading the schema's version: %w", err)
	}
	if err := refuseNewer(applied, provider.ListSources()); err != nil {
		return err
	}
	if o.Existing {
		return refuseOlder(applied, provider.ListSources())
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("updating the schema: %w", err)
	}
	return nil
}

// schemaVersions returns the versions of the migrations that a database contains, or none for a new
// database.
func schemaVersions(ctx context.Context, e engine, db *sql.DB) (map[int64]bool, error) {
	exists := "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = $1"
	if e == postgresEngine {
		exists = "SELECT COUNT(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename = $1"
	}
	var tables int
	if err := db.QueryRowContext(ctx, exists, goose.DefaultTablename).Scan(&tables); err != nil || tables == 0 {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, "SELECT version_id FROM goose_db_version")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	applied := map[int64]bool{}
	for rows.Next() {
		var version int64
		if err := rows.Scan(&version); err != nil {
			return nil, err
		}
		applied[version] = true
	}
	return applied, rows.Err()
}

// refuseNewer returns an error if the schema is newer than this program. Newer servers could
// misinterpret the rows that this program writes.
func refuseNewer(applied map[int64]bool, known []*goose.Source) error {
	mine := map[int64]bool{0: true}
	newest, found := int64(0), int64(0)
	for _, s := range known {
		mine[s.Version] = true
		newest = max(newest, s.Version)
	}
	for version := range applied {
		if !mine[version] {
			found = max(found, version)
		}
	}
	if found == 0 {
		return nil
	}
	return fmt.Errorf("a newer workflow-server has upgraded the database: its schema has version %d, and this program supports schemas up to version %d; "+
		"start the newer workflow-server, or restore a backup from before its first start", found, newest)
}

// refuseOlder returns an error if the database lacks a migration of this program. An older server may
// be running, and could not work with a newer schema.
func refuseOlder(applied map[int64]bool, known []*goose.Source) error {
	if len(applied) == 0 {
		return errors.New("no workflow-server has set up the database yet: start the server first")
	}
	for _, s := range known {
		if !applied[s.Version] {
			return fmt.Errorf("the database belongs to an older workflow-server: its schema lacks version %d of this program; "+
				"use the program of the running server, or upgrade the server first, which updates the schema when it starts", s.Version)
		}
	}
	return nil
}
