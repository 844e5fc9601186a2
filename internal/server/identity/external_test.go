package identity_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"workflowagent/internal/dev/must"
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

// TestTeamsFromProvider changes the groups of a user, whose teams follow at each sign-in.
func TestTeamsFromProvider(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newTeam(t, db)
		for _, name := range []string{"core", "ops", "own"} {
			must.Get(s.CreateTeam(t.Context(), s.acme, store.Team{Name: name}))(t)
		}
		says := func(core, ops string) identity.External {
			return grace(func(e *identity.External) {
				for _, t := range [][3]string{{"acme", "core", core}, {"acme", "missing", identity.RoleMember}, {"acme", "ops", ops}, {"none", "core", identity.RoleMember}} {
					e.Teams = append(e.Teams, identity.ExternalTeam{Organization: t[0], Team: t[1], Role: t[2]})
				}
			})
		}
		// teams returns the user's roles in the teams, such as "core:member own:member".
		teams := func(u store.User) string {
			t.Helper()
			var list []string
			for _, team := range must.Get(s.Teams(t.Context(), identity.Operator(), s.acme.ID))(t) {
				for _, m := range team.Members {
					if m.UserID == u.ID {
						list = append(list, team.Name+":"+m.Role)
					}
				}
			}
			return strings.Join(list, " ")
		}
		first := must.Get(s.FromProvider(t.Context(), says(identity.RoleMember, "")))(t)
		if got := teams(first.User); got != "core:member" {
			t.Errorf("the teams of a new user: %q", got)
		}
		// The provider does not decide about other teams.
		must.OK(t, s.ChangeTeam(t.Context(), identity.Operator(), s.acme, "own", identity.TeamChange{Member: "grace", Action: "add"}))
		for _, tt := range []struct{ core, ops, want string }{
			{identity.RoleMember, "", "core:member own:member"},
			{identity.RoleAdmin, identity.RoleMember, "core:admin ops:member own:member"},
			{"", identity.RoleMember, "ops:member own:member"},
			{"", "", "own:member"},
		} {
			must.Get(s.FromProvider(t.Context(), says(tt.core, tt.ops)))(t)
			if got := teams(first.User); got != tt.want {
				t.Errorf("groups for %q and %q: the teams are %q, want %q", tt.core, tt.ops, got, tt.want)
			}
		}
		if got := s.last(s.acme.ID); !strings.HasPrefix(got, "team.changed ops ") || !strings.Contains(got, `"member":"grace"`) || !strings.Contains(got, `"to":""`) {
			t.Errorf("the audit log ends with %s", got)
		}
		// Teams need a membership in the organization, also after it has ended.
		out := says(identity.RoleMember, identity.RoleMember)
		out.Roles["acme"] = ""
		must.Get(s.FromProvider(t.Context(), out))(t)
		if got := teams(first.User); got != "" {
			t.Errorf("the teams of a former member: %q", got)
		}
		must.Get(s.FromProvider(t.Context(), says(identity.RoleMember, "")))(t)
		denied := says(identity.RoleMember, identity.RoleMember)
		denied.Allowed, denied.Roles = false, nil // the memberships stay, because the provider does not decide about them
		if _, err := s.FromProvider(t.Context(), denied); fault.KindOf(err) != fault.KindForbidden {
			t.Errorf("who may not sign in: %v", err)
		}
		if got := teams(first.User); got != "" {
			t.Errorf("the teams of who may not sign in: %q", got)
		}
	})
}

// TestProviderKeepsTheLastAdministrator takes the groups of the only administrator of an organization away.
func TestProviderKeepsTheLastAdministrator(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newTeam(t, db)
		admin := grace(func(e *identity.External) { e.Roles["acme"] = identity.RoleAdmin })
		p := must.Get(s.FromProvider(t.Context(), admin))(t)
		must.OK(t, s.RemoveMember(t.Context(), s.acme, identity.AdminLogin))
		for name, change := range map[string]func(*identity.External){
			"another role": func(e *identity.External) { e.Roles["acme"] = identity.RoleMember },
			"no role":      func(e *identity.External) { e.Roles["acme"] = "" },
			"not allowed":  func(e *identity.External) { e.Allowed = false },
		} {
			_, err := s.FromProvider(t.Context(), grace(change))
			if want := map[bool]fault.Kind{true: fault.KindForbidden}[name == "not allowed"]; fault.KindOf(err) != want {
				t.Errorf("%s: %v", name, err)
			}
			if got := s.role(p.User.ID); got != identity.RoleAdmin {
				t.Errorf("%s: the last administrator has the role %q", name, got)
			}
			if got := s.last(s.acme.ID); !strings.HasPrefix(got, "member.role-kept grace ") {
				t.Errorf("%s: the audit log ends with %s", name, got)
			}
		}
		// A disabled administrator does not count.
		must.Get(s.AddMember(t.Context(), s.acme, identity.AdminLogin, identity.RoleAdmin))(t)
		must.Get(s.DisableUser(t.Context(), identity.Operator(), "grace", ""))(t)
		if _, err := s.FromProvider(t.Context(), grace(nil)); fault.KindOf(err) != fault.KindForbidden || s.role(p.User.ID) != identity.RoleMember {
			t.Errorf("a disabled user: %v, role %q", err, s.role(p.User.ID))
		}
	})
}
