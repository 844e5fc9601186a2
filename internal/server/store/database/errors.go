package database

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"workflowagent/internal/server/store/blob"
)

var (
	// ErrNotFound reports that no row or blob matches.
	ErrNotFound = blob.ErrNotFound
	// ErrConflict reports that a row with the same unique key exists, or that a conditional change
	// found a row in an unexpected state.
	ErrConflict = errors.New("conflict")
	// ErrInvalid reports a value that the database cannot store, such as text with a NUL character
	// or a number out of range.
	ErrInvalid = errors.New("the database cannot store the value")
	// ErrBusy reports a write that was given up because it took too long, or had to wait too long for others.
	ErrBusy = errors.New("the database, or other writes of the same objects, take too long")
	// ErrMoved reports that the owner of a write belongs to another organization than its scope says.
	ErrMoved = errors.New("the stack was transferred to another organization while this request was handled")
	// ErrDeleted reports that the owner of a write belongs to a deleted organization. It is a kind of [ErrNotFound].
	ErrDeleted = fmt.Errorf("%w: the organization was deleted", ErrNotFound)
	// ErrUnknown reports that the database did not say whether it has committed a write. The write may
	// have taken effect, or may still do so. Nothing may be undone or removed because of this error.
	ErrUnknown = errors.New("the database did not say whether it has stored the change")
	// ErrClosed reports that the database is closed.
	ErrClosed = errors.New("the database is closed")
)

// translate wraps a driver error with the matching error of this package.
func translate(err error) error {
	if err == nil {
		return nil
	}
	postgres, lite := postgresCode(err), sqliteCode(err)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return ErrNotFound
	case postgres == "23505", lite == sqlite3.SQLITE_CONSTRAINT_UNIQUE, lite == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
		return fmt.Errorf("%w: %w", ErrConflict, err)
	case postgres == "55P03": // lock_not_available
		return fmt.Errorf("%w: %w", ErrBusy, err)
	// Data exceptions such as 22021 (not UTF-8), 22P05 (NUL), 22P02 and 22003; 54000 (text too long
	// for its column's index).
	case strings.HasPrefix(postgres, "22"), postgres == "54000", lite == sqlite3.SQLITE_TOOBIG:
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	default:
		return err
	}
}

// IsFull reports whether err was caused by a full disk, either the database's or the blobs'.
func IsFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) ||
		sqliteCode(err)&0xff == sqlite3.SQLITE_FULL || postgresCode(err) == "53100" // disk_full
}

// postgresCode returns the SQLSTATE of an error, or "" if the error has none.
func postgresCode(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// sqliteCode returns the SQLite extended result code of an error, or 0 if the error has none.
func sqliteCode(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()
	}
	return 0
}
