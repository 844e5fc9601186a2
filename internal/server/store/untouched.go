package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"workflowagent/internal/server/store/database"
)

// traces lists the tables to which starts of a server write by themselves, each with a condition that is true if the
// table has a trace of users, too. A row of another table is a trace.
var traces = map[string]string{
	"audit_entries":        "EXISTS (SELECT 1 FROM audit_entries WHERE actor_kind <> 'server' AND action <> 'user.sign-in-link-made')",
	"organizations":        "(SELECT count(*) FROM organizations WHERE created_at > 0) > 1", // migrations create some without a time
	"users":                "(SELECT count(*) FROM users) > 1",
	"members":              "(SELECT count(*) FROM members) > 1",
	"tokens":               "(SELECT count(*) > 1 OR max(last_used_at) > 0 FROM tokens)",
	"goose_db_version":     "0",
	"installation":         "0",
	"organization_storage": "0",
	"server_beats":         "0",
	"sign_in_links":        "0",
	"signing_keys":         "0",
}

// Untouched reports whether only starts of a server have written to the SQLite database in a file: it contains the first
// organization and its administrator, who has neither signed in nor used a token. A server may be using the file.
func Untouched(ctx context.Context, path string) (untouched bool, err error) {
	err = database.ReadSQLite(path, func(db *sql.DB) error {
		tables, err := tablesOf(ctx, db)
		if err != nil {
			return err
		}
		var found []string
		for _, table := range tables {
			condition, ok := traces[table]
			if !ok {
				condition = `EXISTS (SELECT 1 FROM "` + strings.ReplaceAll(table, `"`, `""`) + `")`
			}
			found = append(found, condition)
		}
		if len(found) == 0 {
			return fmt.Errorf("%s has no tables", path)
		}
		return db.QueryRowContext(ctx, "SELECT NOT ("+strings.Join(found, " OR ")+")").Scan(&untouched)
	})
	if err != nil {
		return false, fmt.Errorf("searching the database for data: %w", err)
	}
	return untouched, nil
}

func tablesOf(ctx context.Context, db *sql.DB) ([]string, error) {
	rows, err := db.QueryContext(ctx, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var tables []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		tables = append(tables, name)
	}
	return tables, rows.Err()
}
