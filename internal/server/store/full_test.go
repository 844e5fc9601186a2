package store_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sys/unix"

	"workflowagent/internal/server/store"
)

// TestIsFull checks errors that tests cannot cause. server.TestNotReadyOnAFullDisk fills a real
// disk.
func TestIsFull(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{&fs.PathError{Op: "write", Err: unix.ENOSPC}, true},
		{&fs.PathError{Op: "write", Err: unix.EDQUOT}, true},
		{&pgconn.PgError{Code: "53100"}, true},
		{&pgconn.PgError{Code: "53200"}, false}, // out of memory
		{&fs.PathError{Op: "write", Err: unix.EIO}, false},
		{errors.New("disk is full"), false},
		{nil, false},
	} {
		if got := store.IsFull(errors.Join(tt.err)); got != tt.want {
			t.Errorf("%v: %t", tt.err, got)
		}
	}
}
