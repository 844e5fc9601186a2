package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3/lock"

	"workflowagent/internal/server/store/blob"
)

func receivePostgres(ctx context.Context, dsn string, opts Options, schema []int64, fill func(*Receiver) error) (err error) {
	cfg, failed := parse(dsn)
	if failed != nil {
		return fmt.Errorf("%s: %w", failed.Advice, failed)
	}
	db := newPool(connectTo(cfg, migrationTime), 2)
	defer func() { err = errors.Join(explain(err, cfg), db.Close()) }()
	if err := requireSessions(ctx, db); err != nil {
		return fmt.Errorf("preparing the database: %w", err)
	}
	if err := createSchema(ctx, db, opts, schema); err != nil {
		return err
	}
	if _, err := blob.NewRows(ctx, db); err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	t := &transaction{conn: conn}
	if _, err := conn.ExecContext(ctx, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"); err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	defer t.end(ctx)
	if err := fillPostgres(ctx, conn, fill); err != nil {
		return err
	}
	if _, err := conn.ExecContext(context.WithoutCancel(ctx), "COMMIT"); err != nil {
		return fmt.Errorf("committing; look whether the database contains the restored data before you repeat the command: %w", err)
	}
	t.ended = true
	return nil
}

// createSchema applies the migrations of a schema. An interrupted restore can have applied some of them.
func createSchema(ctx context.Context, db *sql.DB, opts Options, schema []int64) (err error) {
	m, err := newMigration(postgresEngine, db, opts)
	if err != nil {
		return err
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return fmt.Errorf("preparing the migration lock: %w", err)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer discard(conn)
	if err := locker.SessionLock(ctx, conn); err != nil {
		return fmt.Errorf("waiting for a server that updates the schema: %w", err)
	}
	defer func() { err = errors.Join(err, locker.SessionUnlock(context.WithoutCancel(ctx), conn)) }()
	applied, err := schemaVersions(ctx, postgresEngine, db)
	if err != nil {
		return fmt.Errorf("reading the schema's version: %w", err)
	}
	if v := applied.without(m.known); v != 0 {
		return &NotEmptyError{fmt.Sprintf("the database has version %d of the schema, which the backup does not have", v)}
	}
	if len(applied) > 0 {
		tables, err := relations(ctx, db, postgresEngine)
		if err != nil {
			return err
		}
		if err := requireEmpty(ctx, db, tables); err != nil {
			return err
		}
	}
	if len(applied) > len(schema) { // includes version 0
		return nil
	}
	return m.up(ctx)
}

// mayHaveRows are tables in which migrations can add rows. An installation with an organization also has a user.
var mayHaveRows = []string{oldestTable, "organizations"}

func requireEmpty(ctx context.Context, q querier, tables []Relation) error {
	for _, t := range tables {
		if slices.Contains(mayHaveRows, t.Name) {
			continue
		}
		found, err := hasRows(ctx, q, t.Name)
		if err != nil {
			return fmt.Errorf("reading the table %s: %w", t.Name, err)
		}
		if found {
			return &NotEmptyError{"the table " + t.Name + " of the database contains rows"}
		}
	}
	return nil
}

func hasRows(ctx context.Context, q querier, table string) (bool, error) {
	rows, err := q.QueryContext(ctx, "SELECT 1 FROM "+quoted(table)+" LIMIT 1")
	if err != nil {
		return false, err
	}
	defer rows.Close()
	return rows.Next(), rows.Err()
}

func fillPostgres(ctx context.Context, conn *sql.Conn, fill func(*Receiver) error) error {
	tables, err := relations(ctx, conn, postgresEngine)
	if err != nil {
		return err
	}
	if tables, err = inOrder(ctx, conn, tables); err != nil {
		return err
	}
	all := append(slices.Clone(tables), Relation{Name: blob.RowsTable})
	names := make([]string, len(all))
	for i, t := range all {
		names[i] = quoted(t.Name)
	}
	// A server that starts meanwhile waits, and finds the restored installation. The transaction waits for input longer
	// than an administrator may allow others to.
	for _, statement := range []string{
		"SET LOCAL lock_timeout = '15s'",
		"LOCK TABLE " + strings.Join(names, ", ") + " IN ACCESS EXCLUSIVE MODE",
		"SELECT set_config('lock_timeout', '0', true), set_config('idle_in_transaction_session_timeout', '0', true), set_config('statement_timeout', '0', true)",
	} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("locking the tables: %w", translate(err))
		}
	}
	if err := requireEmpty(ctx, conn, all); err != nil {
		return err
	}
	for _, t := range slices.Backward(tables) {
		if _, err := conn.ExecContext(ctx, "DELETE FROM "+quoted(t.Name)); err != nil { //nolint:gosec // a name of the schema
			return fmt.Errorf("emptying the table %s: %w", t.Name, err)
		}
	}
	return fill(&Receiver{Relations: tables, Blobs: blob.WriteRows(conn), load: func(ctx context.Context, rel Relation, rows iter.Seq2[[]any, error]) error {
		return withPgx(conn, func(c *pgx.Conn) error { return copyIn(ctx, c, rel, rows) })
	}})
}

func copyIn(ctx context.Context, conn *pgx.Conn, rel Relation, rows iter.Seq2[[]any, error]) error {
	names := make([]string, len(rel.Columns))
	for i, c := range rel.Columns {
		names[i] = c.Name
	}
	next, stop := iter.Pull2(rows)
	defer stop()
	_, err := conn.CopyFrom(ctx, pgx.Identifier{rel.Name}, names, pgx.CopyFromFunc(func() ([]any, error) {
		values, err, ok := next()
		if !ok {
			return nil, nil
		}
		return values, err
	}))
	return err
}

// inOrder returns the tables in an order in which each follows the tables to which it refers.
func inOrder(ctx context.Context, q querier, tables []Relation) ([]Relation, error) {
	rows, err := q.QueryContext(ctx, `SELECT c.relname, r.relname FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_class r ON r.oid = k.confrelid
		JOIN pg_namespace n ON n.oid = c.relnamespace WHERE k.contype = 'f' AND n.nspname = current_schema() AND c.oid <> r.oid`)
	if err != nil {
		return nil, fmt.Errorf("reading the references between tables: %w", err)
	}
	defer rows.Close()
	needs := map[string][]string{}
	for rows.Next() {
		var table, needed string
		if err := rows.Scan(&table, &needed); err != nil {
			return nil, fmt.Errorf("reading the references between tables: %w", err)
		}
		needs[table] = append(needs[table], needed)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("reading the references between tables: %w", err)
	}
	var ordered []Relation
	done := map[string]bool{}
	for len(ordered) < len(tables) {
		before := len(ordered)
		for _, t := range tables {
			if !done[t.Name] && !slices.ContainsFunc(needs[t.Name], func(n string) bool { return !done[n] }) {
				done[t.Name], ordered = true, append(ordered, t)
			}
		}
		if len(ordered) == before {
			return nil, errors.New("the tables refer to each other in a circle")
		}
	}
	return ordered, nil
}
