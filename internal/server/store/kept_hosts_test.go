package store_test

import (
	"path/filepath"
	"slices"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
)

// TestOlderHostsAreKept opens a database that predates the rule for outgoing calls. Its integrations and
// issuers keep their hosts, except those of public services and those that were never called. New ones
// do not.
func TestOlderHostsAreKept(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { testOlderHosts(t, "sqlite:"+filepath.Join(t.TempDir(), "a.db")) })
	t.Run("postgres", func(t *testing.T) { testOlderHosts(t, storetest.PostgresURL(t)) })
}

func testOlderHosts(t *testing.T, dsn string) {
	blobs := t.TempDir()
	older, err := database.Open(t.Context(), dsn, database.Options{Log: storetest.Log(), BlobDir: blobs, Migrations: storetest.Migrations(t, "migrations", "0380")})
	if err != nil {
		t.Fatal(err)
	}
	integrations := [][3]string{ // id, address and address of the API
		{"public", "https://github.com", ""},
		{"own", "https://git.internal", ""},
		{"own-api", "https://gitlab.com", "https://10.1.2.3/api/v4"},
		{"ssh", "ssh://git@10.1.2.3", ""},
	}
	issuers := [][3]string{ // id, address and static keys
		{"public", "https://token.actions.githubusercontent.com", ""},
		{"own", "https://10.1.2.3", ""},
		{"static", "https://10.1.2.4", `{"keys":[]}`},
	}
	err = older.Write(t.Context(), scope.Server(), func(tx *database.Tx) error {
		if _, err := tx.Exec("INSERT INTO organizations (id, name, display_name, created_at) VALUES ('o', 'acme', 'acme', 1)"); err != nil {
			return err
		}
		for _, i := range integrations {
			if _, err := tx.Exec(`INSERT INTO vcs_integrations (id, org_id, provider, flavor, name, base_url, api_url, owner, project, app_id, installation,
				options, credential, secret, old_secret, old_until, refused_at, problem, created_by, created_at, modified_at)
				VALUES ($1, 'o', 'gitlab', '', $1, $2, $3, '', '', '', '', '{}', '', '', '', 0, 0, '', '', 1, 1)`, i[0], i[1], i[2]); err != nil {
				return err
			}
		}
		for _, i := range issuers {
			if _, err := tx.Exec(`INSERT INTO oidc_issuers (id, org_id, name, url, issuer, thumbprints, max_expiration, jwks, created_at, modified_at, last_used_at)
				VALUES ($1, 'o', $1, $2, $2, '', 0, $3, 1, 1, 0)`, i[0], i[1], i[2]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := older.Close(); err != nil {
		t.Fatal(err)
	}

	db, err := store.Open(t.Context(), dsn, store.Options{Log: storetest.Log(), BlobDir: blobs})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	write(t, db, func(tx *store.Tx) error {
		err := tx.InsertIntegration(store.VCSIntegration{ID: "new", OrgID: "o", Provider: "gitlab", Name: "new", BaseURL: "https://git.internal", Options: "{}"})
		if err != nil {
			return err
		}
		return tx.InsertOIDCIssuer(store.OIDCIssuer{ID: "new", OrgID: "o", Name: "new", URL: "https://10.1.2.5", Issuer: "https://10.1.2.5"})
	})
	kept := func() (ids []string) {
		t.Helper()
		err := db.Read(t.Context(), func(tx *store.Tx) error {
			integrations, err := tx.KeptIntegrations()
			for _, i := range integrations {
				ids = append(ids, "integration "+i.ID)
			}
			if err != nil {
				return err
			}
			issuers, err := tx.KeptOIDCIssuers()
			for _, i := range issuers {
				ids = append(ids, "issuer "+i.ID)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(ids)
		return ids
	}
	if got, want := kept(), []string{"integration own", "integration own-api", "integration ssh", "issuer own"}; !slices.Equal(got, want) {
		t.Errorf("these keep their hosts: %q, want %q", got, want)
	}
	// Changes are stored with the exception or without it.
	write(t, db, func(tx *store.Tx) error {
		for _, id := range []string{"own", "ssh"} {
			i, err := tx.Integration(id)
			if err != nil {
				return err
			}
			i.KeepsHost = id == "own"
			if err := tx.SaveIntegration(i); err != nil {
				return err
			}
		}
		i, err := tx.OIDCIssuer("o", "own")
		if err != nil {
			return err
		}
		return tx.UpdateOIDCIssuer(i)
	})
	if got, want := kept(), []string{"integration own", "integration own-api", "issuer own"}; !slices.Equal(got, want) {
		t.Errorf("after changes, these keep their hosts: %q, want %q", got, want)
	}
}
