package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"workflowagent/internal/retry"
)

// migrate updates the schema, unless the options forbid it, or a newer program has updated it further. It
// returns the versions of the migrations that this program contains. open opens the same database.
func migrate(ctx context.Context, e engine, db *sql.DB, o Options, open func(context.Context, Options) (*DB, error)) (versions, error) {
	m, err := newMigration(e, db, o)
	if err != nil {
		return nil, err
	}
	if o.asIs {
		return m.known, nil
	}
	m.open = open
	standing, err := m.compare(ctx)
	switch {
	case err != nil || standing == current:
	case o.Existing:
		err = m.refuseOlder(ctx)
	case e == postgresEngine:
		err = m.updateShared(ctx)
	case standing == older:
		if err = m.before(ctx); err == nil {
			err = m.up(ctx)
		}
	default:
		err = m.up(ctx)
	}
	if err != nil {
		return nil, err
	}
	return m.known, nil
}

// before calls [Options.BeforeUpdate] with the database as it is.
func (m *migration) before(ctx context.Context) (err error) {
	if m.options.BeforeUpdate == nil {
		return nil
	}
	o := m.options
	o.asIs = true
	db, err := m.open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return m.options.BeforeUpdate(ctx, db)
}

// migration updates a schema.
type migration struct {
	engine   engine
	db       *sql.DB
	provider *goose.Provider
	known    versions // of the migrations that this program contains
	options  Options
	open     func(context.Context, Options) (*DB, error) // nil for a new database
}

func newMigration(e engine, db *sql.DB, o Options) (*migration, error) {
	provider, err := newProvider(e, db, o)
	if err != nil {
		return nil, fmt.Errorf("reading the migrations: %w", err)
	}
	m := &migration{engine: e, db: db, provider: provider, known: versions{0: true}, options: o}
	for _, source := range provider.ListSources() {
		m.known[source.Version] = true
	}
	return m, nil
}

func newProvider(e engine, db *sql.DB, o Options) (*goose.Provider, error) {
	dialect := goose.DialectSQLite3
	if e == postgresEngine {
		dialect = goose.DialectPostgres
	}
	// Each domain has its own range of version numbers, so the number of a new migration can be
	// lower than that of an applied one.
	opts := []goose.ProviderOption{
		goose.WithAllowOutofOrder(true),
		goose.WithDisableGlobalRegistry(true),
		goose.WithLogger(goose.NopLogger()),
	}
	for version, step := range o.Steps {
		up := func(ctx context.Context, tx *sql.Tx) error { return step(ctx, tx, e == postgresEngine) }
		opts = append(opts, goose.WithGoMigrations(goose.NewGoMigration(version, &goose.GoFunc{RunTx: up}, nil)))
	}
	return goose.NewProvider(dialect, db, o.Migrations, opts...)
}

// updateShared updates the schema of a database that other servers may use. An advisory lock serializes
// servers that start at the same time.
func (m *migration) updateShared(ctx context.Context) (err error) {
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return fmt.Errorf("preparing the migration lock: %w", err)
	}
	conn, err := m.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("updating the schema: %w", err)
	}
	defer discard(conn)
	if err := locker.SessionLock(ctx, conn); err != nil {
		return fmt.Errorf("waiting for another server that updates the schema: %w", err)
	}
	defer func() { err = errors.Join(err, locker.SessionUnlock(context.WithoutCancel(ctx), conn)) }()
	// The other server can have been a newer one.
	switch standing, err := m.compare(ctx); {
	case err != nil || standing == current:
		return err
	case standing == empty:
		return m.up(ctx)
	}
	if err := m.before(ctx); err != nil {
		return err
	}
	return m.updateByOne(ctx)
}

func (m *migration) up(ctx context.Context) error {
	if _, err := m.provider.Up(ctx); err != nil {
		return fmt.Errorf("updating the schema: %w", err)
	}
	return nil
}

// updateByOne applies the migrations one by one. After one that excludes older programs, it waits until
// their servers have noticed that.
func (m *migration) updateByOne(ctx context.Context) error {
	before, err := oldestPrograms(ctx, m.engine, m.db)
	for err == nil {
		if _, err := m.provider.UpByOne(ctx); errors.Is(err, goose.ErrNoNextVersion) {
			return nil
		} else if err != nil {
			return fmt.Errorf("updating the schema: %w", err)
		}
		after, err := oldestPrograms(ctx, m.engine, m.db)
		if err != nil {
			return err
		}
		if len(after) > len(before) {
			pause := m.options.Timeouts.orDefault().Older
			m.options.Log.WithField("for", pause.String()).Info("updating the schema: waiting until servers of earlier versions, which may not use it any more, have stopped")
			if err := retry.Sleep(ctx, pause); err != nil {
				return fmt.Errorf("updating the schema: %w", err)
			}
		}
		before = after
	}
	return err
}

// versions are the versions of migrations.
type versions map[int64]bool

// schemaVersions returns the versions of the migrations that a database contains, or none for a new
// database.
func schemaVersions(ctx context.Context, e engine, db *sql.DB) (versions, error) {
	if exists, err := hasTable(ctx, e, db, goose.DefaultTablename); err != nil || !exists {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, "SELECT version_id FROM goose_db_version")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	applied := versions{}
	for rows.Next() {
		var version int64
		if err := rows.Scan(&version); err != nil {
			return nil, err
		}
		applied[version] = true
	}
	return applied, rows.Err()
}

func hasTable(ctx context.Context, e engine, db *sql.DB, name string) (bool, error) {
	query := "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = $1"
	if e == postgresEngine {
		query = "SELECT COUNT(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename = $1"
	}
	var tables int
	err := db.QueryRowContext(ctx, query, name).Scan(&tables)
	return tables > 0, err
}

// refuseOlder returns an error if the database lacks a migration of this program. An older server may
// be running, and could not work with a newer schema.
func (m *migration) refuseOlder(ctx context.Context) error {
	applied, err := schemaVersions(ctx, m.engine, m.db)
	switch {
	case err != nil:
		return err
	case len(applied) == 0:
		return errors.New("no workflow-server has set up the database yet: start the server first")
	}
	return fmt.Errorf("the database belongs to an older workflow-server: its schema lacks version %d of this program; "+
		"use the program of the running server, or upgrade the server first, which updates the schema when it starts", m.known.without(applied))
}

// without returns the greatest of the versions that others lack, or 0.
func (v versions) without(others versions) int64 {
	var greatest int64
	for version := range v {
		if !others[version] {
			greatest = max(greatest, version)
		}
	}
	return greatest
}
