package database

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/pressly/goose/v3"

	"workflowagent/internal/server/store/blob"
)

// Kind is the type of a column.
type Kind string

// The kinds of columns that both engines have.
const (
	Bigint Kind = "bigint" // int64
	Text   Kind = "text"   // string; with SQLite, it can contain any bytes
	Bytea  Kind = "bytea"  // []byte
)

// Relation is a table whose rows are copied to another database.
type Relation struct {
	Name    string
	Columns []Column
}

// Column is a column of a [Relation].
type Column struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
}

// Snapshot is the content of the database at one time. No write waits for it. It is valid only in the function to
// which it is passed, and only in one goroutine.
type Snapshot struct {
	*Tx
	Blobs blob.Reader
}

// Snapshot runs fn on a snapshot of the database, for as long as fn needs. Blobs that are removed meanwhile remain
// readable, and growing ones end where they ended at its beginning.
func (db *DB) Snapshot(ctx context.Context, fn func(*Snapshot) error) error {
	if db.Shared() {
		return db.snapshotPostgres(ctx, fn)
	}
	return db.snapshotSQLite(ctx, fn)
}

func (db *DB) snapshotPostgres(ctx context.Context, fn func(*Snapshot) error) error {
	t, err := beginRead(ctx, db.pool)
	if err != nil {
		return fmt.Errorf("beginning a snapshot: %w", err)
	}
	defer t.end(ctx)
	// The administrator can have limits for the requests of servers, which are short.
	_, err = t.conn.ExecContext(ctx, "SELECT set_config('idle_in_transaction_session_timeout', '0', true), set_config('statement_timeout', '0', true)")
	if err != nil {
		return fmt.Errorf("beginning a snapshot: %w", err)
	}
	tx := &Tx{ctx: ctx, db: db, q: t.conn, now: t.now()}
	err = fn(&Snapshot{Tx: tx, Blobs: blob.ReadRows(t.conn)})
	return cmp.Or(tx.err, err)
}

// snapshotSQLite uses its own connection, so that it takes none from the requests.
func (db *DB) snapshotSQLite(ctx context.Context, fn func(*Snapshot) error) (err error) {
	files, ok := db.blobs.(*blob.Files)
	if !ok {
		return errors.New("beginning a snapshot: the blobs are not files")
	}
	release := files.Hold() // before the snapshot, so that all blobs that it names exist
	defer func() { err = errors.Join(err, release()) }()
	pool, err := sql.Open("sqlite", sqliteDSN(db.file, true))
	if err != nil {
		return fmt.Errorf("beginning a snapshot: %w", err)
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	pool.SetMaxOpenConns(1)
	t, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("beginning a snapshot: %w", err)
	}
	defer t.Rollback() //nolint:errcheck // nothing has changed
	tx := &Tx{ctx: ctx, db: db, q: t}
	if _, err := Scalar[int64](tx, "SELECT COUNT(*) FROM sqlite_master"); err != nil { // a snapshot begins with the first read
		return fmt.Errorf("beginning a snapshot: %w", err)
	}
	blobs := files.Freeze() // after the beginning, so that they contain all that the rows know
	defer blobs.Close()
	err = fn(&Snapshot{Tx: tx, Blobs: blobs})
	return cmp.Or(tx.err, err)
}

// Engine returns the name of the database's engine.
func (tx *Tx) Engine() string { return string(tx.db.engine) }

// SchemaVersions returns the versions of the schema's migrations.
func (tx *Tx) SchemaVersions() ([]int64, error) {
	return Scalars[int64](tx, "SELECT CAST(version_id AS BIGINT) FROM "+goose.DefaultTablename+" WHERE version_id > 0 ORDER BY version_id")
}

// Relations returns all tables, ordered by their names, except those of the migrations and the blobs.
func (tx *Tx) Relations() ([]Relation, error) {
	return relations(tx.ctx, tx.q, tx.db.engine)
}

func relations(ctx context.Context, q querier, e engine) ([]Relation, error) {
	query := `SELECT m.name, c.name, c.type FROM sqlite_master m JOIN pragma_table_info(m.name) c
		WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY m.name, c.cid`
	if e == postgresEngine {
		query = `SELECT c.table_name, c.column_name, c.data_type FROM information_schema.columns c
			JOIN pg_tables t ON t.schemaname = c.table_schema AND t.tablename = c.table_name
			WHERE c.table_schema = current_schema() ORDER BY c.table_name COLLATE "C", c.ordinal_position`
	}
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	defer rows.Close()
	var all []Relation
	for rows.Next() {
		var table, column, declared string
		if err := rows.Scan(&table, &column, &declared); err != nil {
			return nil, fmt.Errorf("reading the schema: %w", err)
		}
		if table == goose.DefaultTablename || table == blob.RowsTable {
			continue
		}
		kind, err := kindOf(declared)
		if err != nil {
			return nil, fmt.Errorf("the column %s of the table %s: %w", column, table, err)
		}
		if len(all) == 0 || all[len(all)-1].Name != table {
			all = append(all, Relation{Name: table})
		}
		last := &all[len(all)-1]
		last.Columns = append(last.Columns, Column{column, kind})
	}
	return all, rows.Err()
}

func kindOf(declared string) (Kind, error) {
	switch strings.ToLower(declared) {
	case "bigint", "integer":
		return Bigint, nil
	case "text":
		return Text, nil
	case "bytea":
		return Bytea, nil
	}
	return "", fmt.Errorf("a backup does not support the type %s", declared)
}

// EachRow calls fn with the values of each row: int64, string, []byte or nil. fn must not keep them, nor use the
// transaction.
func (tx *Tx) EachRow(r Relation, fn func(values []any) error) error {
	rows, err := tx.q.QueryContext(tx.ctx, "SELECT "+columnList(r)+" FROM "+quoted(r.Name))
	if err != nil {
		return fmt.Errorf("reading the table %s: %w", r.Name, translate(err))
	}
	defer rows.Close()
	values, into := make([]any, len(r.Columns)), make([]any, len(r.Columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return fmt.Errorf("reading the table %s: %w", r.Name, err)
		}
		for i, column := range r.Columns {
			if values[i], err = valueOf(values[i], column.Kind); err != nil {
				return fmt.Errorf("reading the column %s of the table %s: %w", column.Name, r.Name, err)
			}
		}
		if err := fn(values); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("reading the table %s: %w", r.Name, translate(err))
	}
	return nil
}

// valueOf returns a value in the form of its column's kind. SQLite stores values of any type in any column.
func valueOf(value any, kind Kind) (any, error) {
	switch v := value.(type) {
	case nil:
		return nil, nil //nolint:nilnil // NULL
	case int64:
		if kind == Bigint {
			return v, nil
		}
	case string:
		if kind == Text {
			return v, nil
		}
		if kind == Bytea {
			return []byte(v), nil
		}
	case []byte:
		if kind == Bytea {
			return v, nil
		}
		if kind == Text {
			return string(v), nil
		}
	}
	return nil, fmt.Errorf("a value has the type %T, but the column the type %s", value, kind)
}

func columnList(r Relation) string {
	names := make([]string, len(r.Columns))
	for i, c := range r.Columns {
		names[i] = quoted(c.Name)
	}
	return strings.Join(names, ", ")
}

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// Bytewise returns an expression for a text that is compared byte by byte, like strings in Go. PostgreSQL compares by
// the rules of a language otherwise.
func (tx *Tx) Bytewise(expression string) string {
	if tx.db.Shared() {
		return expression + ` COLLATE "C"`
	}
	return expression
}
