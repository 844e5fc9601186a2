package database

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	sqlite3 "modernc.org/sqlite/lib"
)

// Schema compares the schema of a database with that of this program.
type Schema string

// The states of a schema.
const (
	SchemaEmpty   Schema = "empty" // no server has used the database yet
	SchemaOlder   Schema = "older" // the next start of this program updates it
	SchemaCurrent Schema = "current"
	SchemaNewer   Schema = "newer" // this program cannot use it
)

// Facts describe a database. Those about PostgreSQL only are marked.
type Facts struct {
	Engine  string // "SQLite" or "PostgreSQL"
	Version string // of the engine
	Missing bool   // the file of SQLite does not exist yet
	// Latency is the median time of a query.
	Latency time.Duration
	Schema  Schema // "" if the role may not read it
	// SchemaProblem says why this program cannot use the schema, or "".
	SchemaProblem string

	// For PostgreSQL only:

	Major           int
	Role, Namespace string        // Namespace is "" if the role has none
	Skew            time.Duration // how far this machine's clock is ahead
	Pooled          bool          // a pooler in transaction mode is in between
	Plain           bool          // the connection crosses a network without TLS
	// CreateProblem says why the role cannot create tables, or "". Foreign is the owner of the server's tables
	// if the role does not have the owner's rights, or "".
	CreateProblem, Foreign string
	Connections            int // that clients other than superusers may open together
}

// ConnectProblem is a kind of problem that prevents a connection.
type ConnectProblem string

// The kinds of problems.
const (
	ConnectUnreachable ConnectProblem = "unreachable" // nothing answers, or the file cannot be opened
	ConnectRefused     ConnectProblem = "refused"     // user, password or pg_hba.conf
	ConnectNoDatabase  ConnectProblem = "no database"
	ConnectTLS         ConnectProblem = "TLS"
	ConnectStandby     ConnectProblem = "standby" // read-only
	ConnectFull        ConnectProblem = "full"    // too many connections
	ConnectAddress     ConnectProblem = "address" // it cannot be parsed
)

// ConnectError is an error of connecting to a database.
type ConnectError struct {
	Problem ConnectProblem
	// Advice says what the operator can do. [Open] gives the same. It is "" if that is not known.
	Advice string
	Err    error // of the driver
}

// Error implements error. It does not contain the password.
func (e *ConnectError) Error() string { return e.Err.Error() }

// Unwrap returns the driver's error.
func (e *ConnectError) Unwrap() error { return e.Err }

// Examine describes a database, and changes nothing in it. If it cannot connect, it returns a
// [ConnectError].
func Examine(ctx context.Context, dsn string, opts Options) (Facts, error) {
	if path, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		return examineSQLite(ctx, path, opts)
	}
	cfg, failed := parse(dsn)
	if failed != nil {
		return Facts{}, failed
	}
	return examinePostgres(ctx, cfg, opts)
}

// openToRead opens the SQLite database in a file, which a server may be using, with one connection that changes nothing.
func openToRead(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", sqliteDSN(path, true))
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

// ReadSQLite calls read with the existing SQLite database in a file, which a server may be using.
func ReadSQLite(path string, read func(*sql.DB) error) (err error) {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	db, err := openToRead(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return read(db)
}

func examineSQLite(ctx context.Context, path string, opts Options) (f Facts, err error) {
	f.Engine = "SQLite"
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		f.Missing, f.Schema = true, SchemaEmpty
		return f, nil
	}
	db, err := openToRead(path)
	if err != nil {
		return f, &ConnectError{Problem: ConnectUnreachable, Err: err}
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&f.Version)
	switch code := sqliteCode(err) & 0xff; {
	case code == sqlite3.SQLITE_NOTADB, code == sqlite3.SQLITE_CORRUPT:
		return f, fmt.Errorf("reading the file: %w", err)
	case err != nil:
		return f, &ConnectError{Problem: ConnectUnreachable, Err: err}
	}
	if err := f.measure(ctx, db); err != nil {
		return f, err
	}
	return f, f.compare(ctx, sqliteEngine, db, opts)
}

func examinePostgres(ctx context.Context, cfg *pgx.ConnConfig, opts Options) (f Facts, err error) {
	f.Engine = "PostgreSQL"
	cfg = connectTo(cfg, opts.Timeouts.orDefault().Answer)
	db := newPool(cfg, 2)
	defer func() { err = errors.Join(err, db.Close()) }()
	err = requireSessions(ctx, db)
	if old, ok := errors.AsType[versionError](err); ok {
		f.Version, f.Major = string(old), majorOf(string(old))
		return f, nil // the following queries need more
	}
	switch {
	case errors.Is(err, errPooled):
		f.Pooled = true
	case err != nil:
		return f, &ConnectError{connectProblem(err), advise(err, cfg), plainConnect(err)}
	}
	var number int
	var server, superusers string
	var namespace *string
	var local bool
	row := db.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int, current_user, current_schema(),
		inet_server_addr() IS NULL OR inet_server_addr() <<= '127.0.0.0/8' OR inet_server_addr() = '::1',
		current_setting('max_connections'), current_setting('superuser_reserved_connections')`)
	if err := row.Scan(&number, &f.Role, &namespace, &local, &server, &superusers); err != nil {
		return f, fmt.Errorf("asking for the version of the database: %w", err)
	}
	f.Major, f.Version = number/10000, fmt.Sprintf("%d.%d", number/10000, number%10000)
	if namespace != nil {
		f.Namespace = *namespace
	}
	most, err1 := strconv.Atoi(server)
	reserved, err2 := strconv.Atoi(superusers)
	if err := cmp.Or(err1, err2); err != nil {
		return f, fmt.Errorf("reading the limit of connections: %w", err)
	}
	f.Connections = most - reserved
	if !local {
		encrypted, err := isEncrypted(ctx, db)
		if err != nil {
			return f, err
		}
		f.Plain = !encrypted
	}
	if f.Pooled {
		return f, nil // the following queries need a session
	}
	before := time.Now()
	var now time.Time
	if err := db.QueryRowContext(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		return f, fmt.Errorf("reading the database time: %w", err)
	}
	f.Skew = before.Add(time.Since(before) / 2).Sub(now)
	if f.CreateProblem, err = tryCreating(ctx, db); err != nil {
		return f, err
	}
	if f.Foreign, err = foreignOwner(ctx, db); err != nil {
		return f, err
	}
	if err := f.measure(ctx, db); err != nil || f.Foreign != "" {
		return f, err // the role may not read the version of the schema
	}
	return f, f.compare(ctx, postgresEngine, db, opts)
}

// measure measures the time of a query.
func (f *Facts) measure(ctx context.Context, db *sql.DB) error {
	var times []time.Duration
	for range 5 {
		began := time.Now()
		var one int
		if err := db.QueryRowContext(ctx, "SELECT 1").Scan(&one); err != nil {
			return fmt.Errorf("measuring the database: %w", err)
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	f.Latency = times[len(times)/2]
	return nil
}

// compare compares the schema with that of this program.
func (f *Facts) compare(ctx context.Context, e engine, db *sql.DB, opts Options) error {
	m, err := newMigration(e, db, opts)
	if err != nil {
		return err
	}
	states := map[standing]Schema{empty: SchemaEmpty, older: SchemaOlder, current: SchemaCurrent}
	standing, err := m.compare(ctx)
	_, newer := errors.AsType[*OldProgramError](err)
	_, foreign := errors.AsType[*foreignSchemaError](err)
	if newer || foreign {
		f.Schema, f.SchemaProblem = SchemaNewer, err.Error()
		return nil
	}
	if err != nil {
		return err
	}
	f.Schema = states[standing]
	return nil
}

func isEncrypted(ctx context.Context, db *sql.DB) (encrypted bool, err error) {
	err = db.QueryRowContext(ctx, "SELECT COALESCE((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false)").Scan(&encrypted)
	if err != nil {
		return false, fmt.Errorf("asking whether the connection is encrypted: %w", err)
	}
	return encrypted, nil
}

// tryCreating creates a table as a migration does, in a transaction that it rolls back. It returns why
// that failed, or "".
func tryCreating(ctx context.Context, db *sql.DB) (problem string, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return "", fmt.Errorf("trying to create a table: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing may remain
	_, err = tx.ExecContext(ctx, "CREATE TABLE workflow_server_doctor (id BIGINT)")
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Message, nil
	}
	return "", err
}

// foreignOwner returns the owner of the server's tables, unless the role has the owner's rights.
func foreignOwner(ctx context.Context, db *sql.DB) (owner string, err error) {
	err = db.QueryRowContext(ctx, `SELECT COALESCE(MAX(tableowner), '') FROM pg_tables WHERE schemaname = current_schema()
		AND tablename IN ('goose_db_version', 'installation') AND NOT pg_has_role(current_user, tableowner, 'USAGE')`).Scan(&owner)
	if err != nil {
		return "", fmt.Errorf("asking for the owner of the tables: %w", err)
	}
	return owner, nil
}

func connectProblem(err error) ConnectProblem {
	code := postgresCode(err)
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case strings.HasPrefix(code, "28"): // invalid authorization
		return ConnectRefused
	case code == "3D000": // invalid catalog name
		return ConnectNoDatabase
	case code == "53300": // too many connections
		return ConnectFull
	case errors.As(err, &unknown), errors.As(err, &host), errors.As(err, &invalid), errors.As(err, &record), strings.Contains(err.Error(), "refused TLS"):
		return ConnectTLS
	case strings.Contains(err.Error(), "standby"), strings.Contains(err.Error(), "read only"):
		return ConnectStandby
	}
	return ConnectUnreachable
}

// plainConnect returns the cause of a failed connection in few words.
func plainConnect(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return errors.New(e.Message)
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e
	}
	return err
}
