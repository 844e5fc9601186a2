package identity_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// grace is what a provider says about a user, with a change.
func grace(change func(*identity.External)) identity.External {
	e := identity.External{
		Issuer: "https://id.example.com", Subject: "1234", Provider: "Example", Login: "Grace", Name: "Grace", Email: "grace@example.com", Allowed: true,
		Roles: map[string]string{"acme": identity.RoleMember, "none": identity.RoleAdmin},
	}
	if change != nil {
		change(&e)
	}
	return e
}

func TestFromProvider(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		ids := identity.New(db, storetest.Log())
		if err := ids.Bootstrap(t.Context(), "acme", func(string) error { return nil }); err != nil {
			t.Fatal(err)
		}
		first, err := ids.FromProvider(t.Context(), grace(nil))
		if err != nil || first.User.Login != "grace" || first.User.DefaultOrg != "acme" || len(first.Roles) != 1 {
			t.Fatalf("the first sign-in: %+v, %v", first, err)
		}
		org := slices.Collect(func(yield func(string) bool) {
			for id := range first.Roles {
				yield(id)
			}
		})[0]
		for name, tt := range map[string]struct {
			change func(*identity.External)
			role   string
			kind   fault.Kind
		}{
			"the same":            {nil, identity.RoleMember, ""},
			"more rights":         {func(e *identity.External) { e.Roles["acme"] = identity.RoleAdmin }, identity.RoleAdmin, ""},
			"no group":            {func(e *identity.External) { e.Roles["acme"] = "" }, "", ""},
			"no rule":             {func(e *identity.External) { e.Roles = nil }, identity.RoleMember, ""},
			"not allowed":         {func(e *identity.External) { e.Allowed = false }, "", fault.KindForbidden},
			"not allowed, admin":  {func(e *identity.External) { e.Allowed, e.Roles["acme"] = false, identity.RoleAdmin }, "", fault.KindForbidden},
			"a changed login":     {func(e *identity.External) { e.Login, e.Email = "admin", "admin@localhost" }, identity.RoleMember, ""},
			"another capital":     {func(e *identity.External) { e.Login = "ADMIN" }, identity.RoleMember, ""},
			"without an address":  {func(e *identity.External) { e.Email, e.Name = "", "" }, identity.RoleMember, ""},
			"an address of admin": {func(e *identity.External) { e.Email = "admin@localhost" }, identity.RoleMember, ""},
		} {
			if _, err := ids.FromProvider(t.Context(), grace(nil)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			p, err := ids.FromProvider(t.Context(), grace(tt.change))
			if fault.KindOf(err) != tt.kind || err == nil && p.User.ID != first.User.ID {
				t.Errorf("%s: %+v, %v", name, p.User, err)
			}
			role, err := store.Read(t.Context(), db, func(tx *store.Tx) (string, error) {
				m, err := tx.Member(org, first.User.ID)
				if errors.Is(err, store.ErrNotFound) {
					err = nil
				}
				return m.Role, err
			})
			if err != nil || role != tt.role {
				t.Errorf("%s: the role is %q (%v), want %q", name, role, err, tt.role)
			}
		}
		// Others are other users.
		for _, change := range []func(*identity.External){
			func(e *identity.External) { e.Subject = "1235" },
			func(e *identity.External) { e.Issuer = "https://other.example.com" },
		} {
			other, err := ids.FromProvider(t.Context(), grace(change))
			if err != nil || other.User.ID == first.User.ID || !strings.HasPrefix(other.User.Login, "grace-") {
				t.Errorf("another identity: %+v, %v", other.User, err)
			}
		}
		// A stranger does not become a user.
		_, err = ids.FromProvider(t.Context(), grace(func(e *identity.External) { e.Subject, e.Login, e.Allowed = "9", "stranger", false }))
		if _, missing := ids.UserByLogin(t.Context(), "stranger"); fault.KindOf(err) != fault.KindForbidden || missing == nil {
			t.Errorf("a stranger: %v, %v", err, missing)
		}
	})
}

// TestFirstSignInsAtOnce signs a new user in several times at once. They must be one user.
func TestFirstSignInsAtOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		ids := identity.New(db, storetest.Log())
		results := make([]string, 8)
		var wg sync.WaitGroup
		for i := range results {
			wg.Go(func() {
				p, err := ids.FromProvider(t.Context(), grace(nil))
				if err != nil {
					t.Error(err)
				}
				results[i] = p.User.ID
			})
		}
		wg.Wait()
		if slices.Sort(results); results[0] == "" || results[0] != results[len(results)-1] {
			t.Errorf("the users are %v", results)
		}
	})
}

func TestConnectAndDisconnect(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		ids := identity.New(db, storetest.Log())
		var users []store.User
		for _, login := range []string{"ada", "eve"} {
			if _, err := ids.CreateUser(t.Context(), identity.NewUser{Login: login, Name: login}); err != nil {
				t.Fatal(err)
			}
			u, err := ids.UserByLogin(t.Context(), login)
			if err != nil {
				t.Fatal(err)
			}
			users = append(users, u)
		}
		ada, eve := users[0], users[1]
		for range 2 {
			if err := ids.Connect(t.Context(), ada, grace(nil)); err != nil {
				t.Fatal(err)
			}
		}
		if err := ids.Connect(t.Context(), eve, grace(nil)); fault.KindOf(err) != fault.KindConflict {
			t.Errorf("the identity of another user: %v", err)
		}
		if err := ids.Connect(t.Context(), eve, grace(func(e *identity.External) { e.Subject, e.Allowed = "2", false })); fault.KindOf(err) != fault.KindForbidden {
			t.Errorf("an identity that may not sign in: %v", err)
		}
		if err := ids.Disconnect(t.Context(), eve, "https://id.example.com", "1234"); err != nil {
			t.Error(err)
		}
		p, err := ids.FromProvider(t.Context(), grace(nil))
		if err != nil || p.User.ID != ada.ID || p.User.Email != "grace@example.com" {
			t.Errorf("the sign-in: %+v, %v", p.User, err)
		}
		if err := ids.Disconnect(t.Context(), ada, "https://id.example.com", "1234"); err != nil {
			t.Error(err)
		}
		if list, err := ids.Identities(t.Context(), ada.ID); err != nil || len(list) != 0 {
			t.Errorf("the identities are %v, %v", list, err)
		}
	})
}
