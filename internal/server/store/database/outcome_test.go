package database

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestRefusals checks which answers to a COMMIT of PostgreSQL mean that nothing was stored.
func TestRefusals(t *testing.T) {
	answer := func(severity, code string) error {
		return &pgconn.PgError{Severity: severity, SeverityUnlocalized: severity, Code: code}
	}
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{answer("ERROR", "40001"), true},
		{answer("ERROR", "23503"), true},
		{answer("ERROR", "53100"), true},
		{&pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: "40001"}, true},
		{errRolledBack, true},
		{answer("FATAL", "57P01"), false}, // after the commit, the session of this transaction is terminated
		{answer("PANIC", "XX000"), false},
		{answer("ERROR", "57P01"), false}, // from a pooler
		{answer("ERROR", "08006"), false},
		{io.ErrUnexpectedEOF, false},
		{context.DeadlineExceeded, false},
	} {
		if got := refused(fmt.Errorf("committing: %w", tt.err)); got != tt.want {
			t.Errorf("%v: %t", tt.err, got)
		}
	}
}
