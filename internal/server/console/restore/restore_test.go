package restore_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// TestRestore shows that an organization waits for its release, what to check before, and which states are as old as the
// backup. Only an administrator releases the organization.
func TestRestore(t *testing.T) {
	s := consoletest.New(t)
	state := json.RawMessage(`{"version": 3, "deployment": {"manifest": {"time": "2026-01-01T00:00:00Z", "magic": "", "version": ""}, "resources": [{"urn": "urn:pulumi:dev::web::pulumi:pulumi:Stack::web-dev", "custom": false, "type": "pulumi:pulumi:Stack"}]}}`)
	s.API(http.MethodPost, "/api/stacks/acme/web", map[string]string{"stackName": "dev"}, nil)
	s.API(http.MethodPost, "/api/stacks/acme/web/dev/import", state, nil)
	var made struct{ ID string }
	s.API(http.MethodPost, "/api/stacks/acme/web/dev/deployments", json.RawMessage(`{"operation": "update", "inheritSettings": false, "sourceContext": {"git": {"repoURL": "https://git.test/r.git", "branch": "main"}}}`), &made)
	member := s.SignInWith(s.AddUser("ann", "member"))
	admin := s.SignIn()

	const banner, line = "Restored from the backup of", "The state is that of the backup"
	if p := admin.Get("/acme/-/restore"); p.Status != http.StatusNotFound {
		t.Errorf("the page of a server that was not restored: %d", p.Status)
	}
	if p := admin.Get("/acme/web/dev"); p.Contains(banner) || p.Contains(line) {
		t.Error("a server that was not restored says so")
	}
	s.Restored()
	must.OK(t, s.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		return tx.SetInstallation("restored-deployments", fmt.Appendf(nil, `{"listed": [{"id": %q, "was": "running"}], "more": 0}`, made.ID))
	}))
	if p := member.Get("/acme/web/dev"); !p.Contains(banner, "2026-11-29 14:05", line, "pulumi refresh --stack acme/web/dev") || p.Contains("Check and release") {
		t.Errorf("a member sees %s", p.Body)
	}
	if p := admin.Get("/acme/-/stacks"); !p.Contains(banner, `href="/acme/-/restore"`) {
		t.Errorf("an administrator sees %s", p.Body)
	}
	if p := admin.Get("/acme/-/restore"); !p.Contains("Release acme", `href="/acme/web/dev/deployments/1"`, "running", "queued", "No token of the organization in the backup is valid", "1 organization") {
		t.Errorf("the page is %s", p.Body)
	}
	for _, path := range []string{"/acme/-/restore/release", "/-/server/restore/release"} {
		if p := member.Post(path, nil); p.Status != http.StatusForbidden {
			t.Errorf("%s of a member: %d", path, p.Status)
		}
	}
	if p := admin.Post("/acme/-/deployments/resume", nil); p.Status != http.StatusConflict || !p.Contains("release it") {
		t.Errorf("resuming without a release: %d %s", p.Status, p.Body)
	}
	if p := admin.Post("/acme/-/restore/release", nil); p.Location() != "/acme/-/restore" {
		t.Errorf("the release: %d %s", p.Status, p.Body)
	}
	if p := admin.Get("/acme/-/restore"); p.Contains("Release acme") || !p.Contains("All organizations are released") {
		t.Errorf("after the release, the page is %s", p.Body)
	}
	if p := member.Get("/acme/web/dev"); p.Contains(banner) || !p.Contains(line) {
		t.Errorf("after the release, the stack is %s", p.Body)
	}
	s.API(http.MethodPost, "/api/stacks/acme/web/dev/import", state, nil)
	if p := member.Get("/acme/web/dev"); p.Contains(line) {
		t.Errorf("after an import, the stack is %s", p.Body)
	}
}

// TestRevokeTokens revokes the tokens of the backup: an administrator of an organization those of the organization, and one
// of the server all.
func TestRevokeTokens(t *testing.T) {
	s := consoletest.New(t)
	s.Restored()
	admin, server := s.SignInWith(s.AddUser("ann", "admin")), s.SignIn()
	member := s.SignInWith(s.AddUser("bob", "member"))
	must.OK(t, s.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		org, err := tx.OrganizationByName(consoletest.Org)
		if err != nil {
			return err
		}
		user, err := tx.UserByLogin("bob")
		if err != nil {
			return err
		}
		for _, token := range []store.Token{
			{ID: "of-acme", Kind: store.OrgToken, OrgID: org.ID},
			{ID: "of-pool", Kind: store.PoolToken, OrgID: org.ID, PoolID: "pool"},
			{ID: "of-bob", Kind: store.PersonalToken, UserID: user.ID},
			{ID: "exchanged", Kind: store.PersonalToken, OrgID: org.ID, UserID: user.ID, IssuerID: "issuer"},
		} {
			token.Hash, token.CreatedAt = []byte(token.ID), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			if err := tx.InsertToken(token); err != nil {
				return err
			}
		}
		return nil
	}))
	listed := func() (ids []string) {
		t.Helper()
		p := admin.Get("/acme/-/restore")
		for _, id := range []string{"of-acme", "of-pool", "of-bob", "exchanged"} {
			if p.Contains(">" + id + "<") {
				ids = append(ids, id)
			}
		}
		return ids
	}
	valid := func() (ids []string) {
		t.Helper()
		tokens := must.Get(recovery.New(s.DB(), nil, storetest.Log()).Tokens(t.Context(), "", 100))(t)
		for _, id := range []string{"of-acme", "of-pool", "of-bob", "exchanged"} {
			if slices.ContainsFunc(tokens, func(l store.ListedToken) bool { return l.ID == id }) {
				ids = append(ids, id)
			}
		}
		return ids
	}
	for _, step := range []struct {
		by       *consoletest.Browser
		path     string
		kind     string
		status   int
		org, all []string // what the page of the organization shows, and what remains
	}{
		{member, "/acme/-/restore/revoke-tokens", "all", http.StatusForbidden, []string{"of-acme", "of-pool", "exchanged"}, []string{"of-acme", "of-pool", "of-bob", "exchanged"}},
		{admin, "/-/server/restore/revoke-tokens", "all", http.StatusForbidden, []string{"of-acme", "of-pool", "exchanged"}, []string{"of-acme", "of-pool", "of-bob", "exchanged"}},
		{admin, "/acme/-/restore/revoke-tokens", "everything", http.StatusBadRequest, []string{"of-acme", "of-pool", "exchanged"}, []string{"of-acme", "of-pool", "of-bob", "exchanged"}},
		{admin, "/acme/-/restore/revoke-tokens", "pool", http.StatusSeeOther, []string{"of-acme", "exchanged"}, []string{"of-acme", "of-bob", "exchanged"}},
		{admin, "/acme/-/restore/revoke-tokens", "all", http.StatusSeeOther, nil, []string{"of-bob"}},
		{server, "/-/server/restore/revoke-tokens", "access", http.StatusSeeOther, nil, nil},
	} {
		if p := step.by.Post(step.path, url.Values{"kind": {step.kind}}); p.Status != step.status {
			t.Errorf("%s of %s: %d %s", step.path, step.kind, p.Status, p.Body)
		}
		if org, all := listed(), valid(); !slices.Equal(org, step.org) || !slices.Equal(all, step.all) {
			t.Errorf("after %s of %s, the page shows %v, and %v remain, want %v and %v", step.path, step.kind, org, all, step.org, step.all)
		}
	}
}
