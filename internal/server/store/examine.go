package store

import (
	"context"
	"fmt"
	"io/fs"

	"workflowagent/internal/server/store/database"
)

type (
	// Facts describe a database; see [database.Facts].
	Facts = database.Facts
	// ConnectError is an error of connecting to a database; see [database.ConnectError].
	ConnectError = database.ConnectError
)

// Examine describes the database at an address, and changes nothing in it.
func Examine(ctx context.Context, dsn string, opts Options) (Facts, error) {
	opts, err := withMigrations(opts)
	if err != nil {
		return Facts{}, err
	}
	return database.Examine(ctx, dsn, opts)
}

func withMigrations(opts Options) (Options, error) {
	var err error
	if opts.Migrations, err = fs.Sub(migrations, "migrations"); err != nil {
		return opts, fmt.Errorf("reading the migrations: %w", err)
	}
	opts.Steps = steps
	return opts, nil
}
