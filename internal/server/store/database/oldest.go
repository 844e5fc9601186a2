package database

import (
	"context"
	"database/sql"
	"fmt"
)

// oldestTable lists the programs that may use the schema: those that contain all these migrations. A
// migration that older programs could not bear adds the row of an earlier one; see ADR 58.
const oldestTable = "oldest_programs"

// OldProgramError means that a newer program has changed the database so that this one must not use it.
type OldProgramError struct {
	// Oldest is the release from which on programs may use the database.
	Oldest string
}

// Error returns what happened and what to do.
func (e *OldProgramError) Error() string {
	return fmt.Sprintf("this workflow-server is too old for its database: a newer one has upgraded it, and only %[1]s and later may use it; "+
		"install %[1]s or later, or restore a backup from before the upgrade", e.Oldest)
}

// oldestPrograms returns the rows of oldestTable: the versions of migrations, with the release that
// contained each first.
func oldestPrograms(ctx context.Context, e engine, db *sql.DB) (map[int64]string, error) {
	if exists, err := hasTable(ctx, e, db, oldestTable); err != nil || !exists {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, "SELECT migration, release FROM "+oldestTable)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	oldest := map[int64]string{}
	for rows.Next() {
		var version int64
		var release string
		if err := rows.Scan(&version, &release); err != nil {
			return nil, err
		}
		oldest[version] = release
	}
	return oldest, rows.Err()
}

// checkProgram returns an *[OldProgramError] if a program with the known migrations must not use the
// database.
func checkProgram(ctx context.Context, e engine, db *sql.DB, known versions) error {
	oldest, err := oldestPrograms(ctx, e, db)
	if err != nil {
		return fmt.Errorf("reading which programs may use the database: %w", err)
	}
	needed := versions{}
	for version := range oldest {
		needed[version] = true
	}
	if newest := needed.without(known); newest != 0 {
		return &OldProgramError{Oldest: oldest[newest]}
	}
	return nil
}

// standing is how a schema compares with a program.
type standing int

const (
	empty   standing = iota
	older            // it lacks migrations of the program
	current          // it has all of them, and maybe those of a newer program
)

// compare compares the schema with this program. It returns an error if this program must not use it.
func (m *migration) compare(ctx context.Context) (standing, error) {
	if err := checkProgram(ctx, m.engine, m.db, m.known); err != nil {
		return 0, err
	}
	applied, err := schemaVersions(ctx, m.engine, m.db)
	if err != nil {
		return 0, fmt.Errorf("reading the schema's version: %w", err)
	}
	foreign, lacks := applied.without(m.known), m.known.without(applied)
	switch {
	case len(applied) == 0:
		return empty, nil
	case lacks == 0:
		return current, nil
	case foreign == 0:
		return older, nil
	}
	return 0, &foreignSchemaError{foreign, lacks}
}

// foreignSchemaError means that neither this program nor a newer one has created the schema.
type foreignSchemaError struct{ foreign, lacks int64 }

func (e *foreignSchemaError) Error() string {
	return fmt.Sprintf("the database belongs to another workflow-server: its schema has version %d, which this program does not know, "+
		"and lacks version %d; start the server that has upgraded it, or restore a backup from before", e.foreign, e.lacks)
}

// CheckProgram returns an *[OldProgramError] if a newer program has upgraded the database since it was
// opened, so that this one must not use it any more.
func (db *DB) CheckProgram(ctx context.Context) error {
	return checkProgram(ctx, db.engine, db.pool, db.known)
}
