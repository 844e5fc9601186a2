package store_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/pressly/goose/v3"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

// TestTokensOfRunningJobsGetTheirScope opens a database that predates scopes and teams, and contains
// running jobs and a team's token. The tokens must receive their scopes and their team.
func TestTokensOfRunningJobsGetTheirScope(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "old.db")
		testOldTokens(t, goose.DialectSQLite3, "sqlite", path, "sqlite:"+path)
	})
	t.Run("postgres", func(t *testing.T) {
		dsn := storetest.PostgresURL(t)
		testOldTokens(t, goose.DialectPostgres, "pgx", dsn, dsn)
	})
}

func testOldTokens(t *testing.T, dialect goose.Dialect, driver, source, dsn string) {
	dir := t.TempDir()
	old := filepath.Join(dir, "migrations")
	if err := os.Mkdir(old, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"0001_core.sql", "0002_stacks.sql", "0010_pools.sql", "0011_deployments.sql", "0020_oidc.sql"} {
		data, err := os.ReadFile(filepath.Join("migrations", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(old, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	provider, err := goose.NewProvider(dialect, raw, os.DirFS(old), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := raw.ExecContext(t.Context(), query, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec("INSERT INTO organizations VALUES ('o', 'acme', 'acme', 1)")
	const (
		look   = "s:decrypt s:encrypt s:preview s:state-read"
		change = look + " s:decrypt-config s:write"
	)
	jobs := []struct {
		operation, configuration, user string
		admin                          int
		want                           string
	}{
		{"preview", "{}", "u", 0, look + " *:outputs"},
		{"detect-drift", "{}", "", 0, look},
		{"detect-drift", `{"options":{"remediateIfDriftDetected":true}}`, "", 0, change},
		{"update", "{}", "u", 0, change + " *:outputs"},
		{"destroy", "{}", "u", 1, change + " s:delete-stack *:outputs"},
	}
	for i, j := range jobs {
		id := string(rune('a' + i))
		exec(`INSERT INTO deployments (id, org_id, stack_id, project, stack, version, operation, initiator, requested_by, requester, configuration, created_at)
			VALUES ($1, 'o', 's', 'p', 'dev', $2, $3, 'api', $4, '', $5, 1)`, id, i, j.operation, j.user, j.configuration)
		exec(`INSERT INTO tokens (id, hash, kind, name, description, org_id, user_id, pool_id, job_id, epoch, deployment_id, stack_id, admin, created_by, created_at, expires_at, last_used_at)
			VALUES ($1, $2, 'job', '', '', 'o', $3, '', '', 1, $4, 's', $5, '', 1, 0, 0)`, id, []byte(id), j.user, id, j.admin)
	}
	exec(`INSERT INTO tokens (id, hash, kind, name, description, org_id, user_id, pool_id, job_id, epoch, deployment_id, stack_id, admin, created_by, created_at, expires_at, last_used_at)
		VALUES ('org', 'org', 'org', 'n', '', 'o', '', '', '', 0, '', '', 1, '', 1, 0, 0)`)
	exec(`INSERT INTO tokens (id, hash, kind, name, description, org_id, user_id, pool_id, job_id, epoch, deployment_id, stack_id, admin, created_by, created_at, expires_at, last_used_at)
		VALUES ('team', 'team', 'team', 'n', 'core', 'o', '', '', '', 0, '', '', 0, '', 1, 0, 0)`)
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}

	db, err := store.Open(t.Context(), dsn, store.Options{Log: storetest.Log(), BlobDir: filepath.Join(dir, "blobs")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	token := func(id string) (tok store.Token) {
		t.Helper()
		err := db.Read(t.Context(), func(tx *store.Tx) (err error) {
			tok, err = tx.TokenByID(id)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	// Teams of old tokens exist, and members keep their rights.
	err = db.Read(t.Context(), func(tx *store.Tx) error {
		team, err := tx.TeamByName("o", "core")
		if tok := token("team"); err == nil && (tok.TeamID != team.ID || tok.Description != "") {
			t.Errorf("the token of team %q belongs to team %q and has the description %q", team.ID, tok.TeamID, tok.Description)
		}
		org, orgErr := tx.OrganizationByName("acme")
		if org.StackPermission != store.AdminPermission {
			t.Errorf("members of an old organization have the permission %d", org.StackPermission)
		}
		return errors.Join(err, orgErr)
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range jobs {
		if tok := token(string(rune('a' + i))); tok.Scope != j.want || tok.Admin {
			t.Errorf("the token of a %s %s has the scope %q (administrator: %v), want %q", j.operation, j.configuration, tok.Scope, tok.Admin, j.want)
		}
	}
	if tok := token("org"); tok.Scope != "" || !tok.Admin {
		t.Errorf("the organization's token is %+v", tok)
	}
}
