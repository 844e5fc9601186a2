package identity_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// team is a service with the organization acme, its administrator, and members.
type team struct {
	*identity.Service
	t      *testing.T
	db     *store.DB
	acme   store.Organization
	tokens map[string]string
}

func newTeam(t *testing.T, db *store.DB, members ...string) team {
	t.Helper()
	s := team{Service: identity.New(db, storetest.Log()), t: t, db: db, tokens: map[string]string{}}
	must.OK(t, s.Bootstrap(t.Context(), "acme", func(text string) error { s.tokens[identity.AdminLogin] = text; return nil }))
	for _, login := range members {
		s.tokens[login] = must.Get(s.CreateUser(t.Context(), identity.NewUser{Login: login, Name: login, Email: login + "@x", Org: "acme", Role: identity.RoleMember}))(t)
	}
	s.acme = must.Get(s.Organizations(t.Context()))(t)[0]
	return s
}

func (s team) authenticates(token string) bool {
	s.t.Helper()
	_, err := s.Authenticate(s.t.Context(), token)
	if err != nil && fault.KindOf(err) != fault.KindUnauthenticated {
		s.t.Fatal(err)
	}
	return err == nil
}

// write adds rows.
func (s team) write(fn func(tx *store.Tx) error) {
	s.t.Helper()
	must.OK(s.t, s.db.Write(s.t.Context(), scope.Server(), fn))
}

// last returns the newest entry of the audit log of an organization, or of the server.
func (s team) last(orgID string) string {
	s.t.Helper()
	list := must.Get(store.Read(s.t.Context(), s.db, func(tx *store.Tx) ([]store.AuditEntry, error) {
		return tx.AuditEntries(store.AuditFilter{OrgID: orgID, Limit: 1})
	}))(s.t)
	if len(list) == 0 {
		return ""
	}
	return list[0].Action + " " + list[0].Subject + " " + list[0].Detail
}

func TestDisableUser(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newTeam(t, db, "ann", "bob")
		ann := must.Get(s.UserByLogin(t.Context(), "ann"))(t)
		_, job := identity.NewToken()
		jobText, jobHash := identity.NewToken()
		s.write(func(tx *store.Tx) error {
			now := tx.Now()
			for i, u := range []string{ann.ID, must.Get(tx.UserByLogin("bob"))(t).ID} {
				session := store.Session{ID: string(rune('a' + i)), Hash: []byte{byte(i)}, UserID: u, CreatedAt: now, SeenAt: now, EndsAt: now.Add(time.Hour)}
				must.OK(t, tx.InsertSession(session))
				must.OK(t, tx.InsertSignInLink(store.SignInLink{ID: session.ID, Hash: session.Hash, UserID: u, CreatedAt: now, ExpiresAt: now.Add(time.Hour)}))
			}
			exchanged := store.Token{ID: "x", Hash: job, Kind: store.PersonalToken, UserID: ann.ID, OrgID: s.acme.ID, IssuerID: "i", CreatedAt: now}
			shared := store.Token{ID: "o", Hash: []byte("o"), Kind: store.OrgToken, OrgID: s.acme.ID, CreatedBy: ann.ID, CreatedAt: now}
			deployment := store.Token{
				ID: "j", Hash: jobHash, Kind: store.JobToken, UserID: ann.ID, CreatedBy: ann.ID, OrgID: s.acme.ID, StackID: "own", CreatedAt: now,
				Scope: identity.Scope{"own": identity.Write, identity.OtherStacks: identity.Outputs}.String(),
			}
			for _, token := range []store.Token{exchanged, shared, deployment} {
				must.OK(t, tx.InsertToken(token))
			}
			return tx.InsertStack(store.Stack{ID: "own", OrgID: s.acme.ID, Project: "p", Name: "own", CreatedBy: ann.ID, CreatedAt: now})
		})
		own, other := store.Stack{ID: "own", OrgID: s.acme.ID, CreatedBy: ann.ID}, store.Stack{ID: "other", OrgID: s.acme.ID, OrgPermission: store.ReadPermission}
		work := must.Get(s.Authenticate(t.Context(), jobText))(t)
		if !work.Can(own, identity.Write) || !work.Can(other, identity.Outputs) {
			t.Fatal("the job has no rights before")
		}

		ended, err := s.DisableUser(t.Context(), identity.Operator(), "ann", "")
		if want := (identity.Ended{Sessions: 1, Tokens: 2, Owned: 2, Login: "ann"}); err != nil || ended != want {
			t.Errorf("got %+v, %v; want %+v", ended, err, want)
		}
		if s.authenticates(s.tokens["ann"]) || !s.authenticates(s.tokens["bob"]) {
			t.Error("the token of ann works, or that of bob does not")
		}
		if got := s.last(""); !strings.HasPrefix(got, "user.disabled ann") || !strings.Contains(got, `"sessions":1`) {
			t.Errorf("the audit log ends with %s", got)
		}
		// The job continues on its own stack.
		work = must.Get(s.Authenticate(t.Context(), jobText))(t)
		if !work.Can(own, identity.Write) || work.Can(other, identity.Outputs) {
			t.Errorf("the job may write its stack: %t, read others: %t", work.Can(own, identity.Write), work.Can(other, identity.Outputs))
		}
		must.OK(t, db.Read(t.Context(), func(tx *store.Tx) error {
			if may, err := identity.MayRun(tx, ann.ID, "own", identity.Write); may || err != nil {
				t.Errorf("ann may still run updates: %v", err)
			}
			if _, err := identity.ActAs(tx, own, identity.Principal{Kind: identity.KindUser, User: ann}.Actor()); fault.KindOf(err) != fault.KindForbidden || !strings.Contains(err.Error(), "disabled") {
				t.Errorf("acting for ann: %v", err)
			}
			if p, err := identity.OfUser(tx, ann.ID); err != nil || len(p.Roles) > 0 || p.User.SiteAdmin {
				t.Errorf("ann has the rights %+v, %v", p, err)
			}
			left, err := tx.SessionsOf(ann.ID)
			if links, _ := tx.SignInLink([]byte{0}); err != nil || len(left) > 0 || links.ID != "" {
				t.Errorf("left: %v, %v, %v", left, links, err)
			}
			_, err = tx.SignInLink([]byte{1})
			return err
		}))
		// No new access.
		if _, _, err := s.CreateToken(t.Context(), identity.NewTokenSpec{Kind: store.PersonalToken, UserID: ann.ID}); fault.KindOf(err) != fault.KindConflict {
			t.Errorf("a new token: %v", err)
		}
		for what, err := range map[string]error{
			"again":   func() error { _, err := s.DisableUser(t.Context(), identity.Operator(), "ann", ""); return err }(),
			"enabled": s.EnableUser(t.Context(), "bob"),
		} {
			if fault.KindOf(err) != fault.KindConflict {
				t.Errorf("%s: %v", what, err)
			}
		}

		must.OK(t, s.EnableUser(t.Context(), "ann"))
		if s.authenticates(s.tokens["ann"]) {
			t.Error("the old token works again")
		}
		text, _, err := s.CreateToken(t.Context(), identity.NewTokenSpec{Kind: store.PersonalToken, UserID: ann.ID})
		p, err2 := s.Authenticate(t.Context(), text)
		if err != nil || err2 != nil || p.Role(s.acme.ID) != identity.RoleMember {
			t.Errorf("after user enable: %+v, %v, %v", p, err, err2)
		}
		if _, err := s.DisableUser(t.Context(), identity.Operator(), "nobody", ""); fault.KindOf(err) != fault.KindNotFound {
			t.Errorf("a missing user: %v", err)
		}
	})
}

func TestDisabledUserOfProvider(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newTeam(t, db)
		p := must.Get(s.FromProvider(t.Context(), grace(nil)))(t)
		must.Get(s.DisableUser(t.Context(), identity.Operator(), p.User.Login, ""))(t)
		if _, err := s.FromProvider(t.Context(), grace(nil)); fault.KindOf(err) != fault.KindForbidden || !strings.Contains(err.Error(), "disabled") {
			t.Errorf("a disabled user signed in: %v", err)
		}
		must.OK(t, s.EnableUser(t.Context(), p.User.Login))
		must.Get(s.FromProvider(t.Context(), grace(nil)))(t)
		// A deleted user is a new one at the next sign-in.
		must.Get(s.DeleteUser(t.Context(), identity.Operator(), p.User.Login, ""))(t)
		again := must.Get(s.FromProvider(t.Context(), grace(nil)))(t)
		if again.User.ID == p.User.ID || again.User.Login != "grace" {
			t.Errorf("the next sign-in: %+v", again.User)
		}
	})
}

// TestRemovedMembers checks that the open pages of a removed member hear of it.
func TestRemovedMembers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newTeam(t, db, "ann")
		ended := make(chan string, 10)
		defer db.Subscribe(identity.SessionTopic, func(payload string) { ended <- payload })()
		must.OK(t, s.RemoveMember(t.Context(), s.acme, "ann"))
		ann := must.Get(s.UserByLogin(t.Context(), "ann"))(t)
		select {
		case got := <-ended:
			if got != ann.ID && got != "" {
				t.Errorf("notified of %q", got)
			}
		case <-time.After(time.Minute):
			t.Error("nothing was notified")
		}
	})
}

func TestLastAdministrators(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newTeam(t, db, "ann")
		disable := func(login, to string) error {
			_, err := s.DisableUser(t.Context(), identity.Operator(), login, to)
			return err
		}
		remove := func(login string) error {
			_, err := s.DeleteUser(t.Context(), identity.Operator(), login, "")
			return err
		}
		refused := func(err error, text string) {
			t.Helper()
			if fault.KindOf(err) != fault.KindConflict || !strings.Contains(err.Error(), text) {
				t.Errorf("got %v, want %q", err, text)
			}
		}
		refused(disable("admin", "ann"), "last administrator of the server")
		refused(remove("admin"), "last administrator of the server")
		must.Get(s.CreateUser(t.Context(), identity.NewUser{Login: "boss", SiteAdmin: true}))(t)
		refused(disable("admin", ""), "last administrator of acme; make another member an administrator first, or name the user who takes over")
		refused(remove("admin"), "last administrator of acme")
		must.OK(t, s.SetRole(t.Context(), s.acme, "ann", identity.RoleAdmin))
		// A disabled administrator does not count, neither of the organization nor of the server.
		must.OK(t, disable("ann", ""))
		refused(remove("admin"), "last administrator of acme")
		if err := s.RemoveMember(t.Context(), s.acme, "admin"); fault.KindOf(err) != fault.KindInvalid {
			t.Errorf("the last enabled administrator was removed: %v", err)
		}
		must.OK(t, s.SetRole(t.Context(), s.acme, "ann", identity.RoleMember))
		refused(s.SetSoleAdmin(t.Context(), s.acme, "ann"), "ann is disabled")
		must.OK(t, disable("boss", ""))
		refused(disable("admin", "boss"), "last administrator of the server")
		must.OK(t, s.EnableUser(t.Context(), "boss"))
		refused(disable("admin", "ann"), "ann is disabled")
		must.Get(s.AddMember(t.Context(), s.acme, "boss", identity.RoleMember))(t)
		must.OK(t, disable("admin", "boss"))
		if boss := must.Get(s.UserByLogin(t.Context(), "boss"))(t); s.role(boss.ID) != identity.RoleAdmin {
			t.Errorf("boss has the role %q in acme", s.role(boss.ID))
		}
		if s.authenticates(s.tokens["admin"]) {
			t.Error("the token of admin works")
		}
		must.OK(t, remove("ann"))
		must.OK(t, remove("admin"))
	})
}

// role returns the role of a user in acme.
func (s team) role(userID string) string {
	s.t.Helper()
	return must.Get(store.Read(s.t.Context(), s.db, func(tx *store.Tx) (map[string]string, error) { return tx.RolesOf(userID) }))(s.t)[s.acme.ID]
}

// TestTwoLastAdministrators disables both administrators of a server at the same time.
func TestTwoLastAdministrators(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newTeam(t, db)
		must.Get(s.CreateUser(t.Context(), identity.NewUser{Login: "boss", SiteAdmin: true, Org: "acme", Role: identity.RoleAdmin}))(t)
		errs := make([]error, 2)
		var wg sync.WaitGroup
		for i, login := range []string{"admin", "boss"} {
			wg.Go(func() { _, errs[i] = s.DisableUser(t.Context(), identity.Operator(), login, "") })
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("got %v; want one refusal", errs)
		}
	})
}

func TestDeleteUser(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newTeam(t, db, "ann", "bob")
		ann := must.Get(s.UserByLogin(t.Context(), "ann"))(t)
		must.Get(s.CreateTeam(t.Context(), s.acme, store.Team{Name: "core"}))(t)
		must.OK(t, s.Connect(t.Context(), ann, identity.External{Issuer: "i", Subject: "s", Allowed: true}))
		s.write(func(tx *store.Tx) error {
			now := tx.Now()
			must.OK(t, tx.InsertPasskey(store.Passkey{ID: "k", Credential: []byte("k"), UserID: ann.ID, PublicKey: []byte("p"), CreatedAt: now}))
			for _, st := range []store.Stack{{ID: "mine", CreatedBy: ann.ID}, {ID: "granted"}} {
				st.OrgID, st.Project, st.Name, st.CreatedAt = s.acme.ID, "p", st.ID, now
				must.OK(t, tx.InsertStack(st))
			}
			must.OK(t, tx.SaveCollaborator(store.Collaborator{StackID: "granted", UserID: ann.ID, Permission: store.AdminPermission}))
			return nil
		})
		if _, err := s.DeleteUser(t.Context(), identity.Operator(), "ann", ""); fault.KindOf(err) != fault.KindConflict || err.Error() != "ann owns 1 stack; name the user who takes over" {
			t.Errorf("deleting the owner of a stack: %v", err)
		}
		ended, err := s.DeleteUser(t.Context(), identity.Operator(), "ann", "bob")
		remains := "ann-deleted-" + ann.ID[:8]
		if want := (identity.Ended{Tokens: 1, Login: remains}); err != nil || ended != want {
			t.Fatalf("got %+v, %v; want %+v", ended, err, want)
		}
		if s.authenticates(s.tokens["ann"]) {
			t.Error("the token works")
		}
		must.OK(t, db.Read(t.Context(), func(tx *store.Tx) error {
			left := must.Get(tx.User(ann.ID))(t)
			if left.Login != remains || left.Email != "" || left.Name != remains || !left.Disabled() || left.DefaultOrg != "" {
				t.Errorf("left: %+v", left)
			}
			keys, roles := must.Get(tx.PasskeysOf(ann.ID))(t), must.Get(tx.RolesOf(ann.ID))(t)
			accounts, grants := must.Get(tx.IdentitiesOf(ann.ID))(t), must.Get(tx.Collaborators("granted"))(t)
			if len(keys)+len(roles)+len(accounts)+len(grants) > 0 || must.Get(tx.Stack("mine"))(t).CreatedBy != must.Get(tx.UserByLogin("bob"))(t).ID {
				t.Errorf("left: %v, %v, %v, %v", keys, roles, accounts, grants)
			}
			return nil
		}))
		if got := s.last(""); !strings.HasPrefix(got, "user.deleted ann ") {
			t.Errorf("the audit log of the server ends with %s", got)
		}
		if got := s.last(s.acme.ID); !strings.HasPrefix(got, "member.removed ann ") {
			t.Errorf("the audit log of the organization ends with %s", got)
		}
		for _, login := range []string{"ann", remains} {
			if _, err := s.DeleteUser(t.Context(), identity.Operator(), login, ""); fault.KindOf(err) != fault.KindNotFound {
				t.Errorf("deleting %s again: %v", login, err)
			}
			if err := s.EnableUser(t.Context(), login); fault.KindOf(err) != fault.KindNotFound {
				t.Errorf("enabling %s: %v", login, err)
			}
		}
		list, more, err := s.Users(t.Context(), "", "", 10)
		if err != nil || more || len(list) != 2 || list[1].Login != "bob" {
			t.Errorf("the users are %v, %v", list, err)
		}
		// Another user can have the login, without anything of the former one.
		must.Get(s.CreateUser(t.Context(), identity.NewUser{Login: "ann"}))(t)
		if again := must.Get(s.UserByLogin(t.Context(), "ann"))(t); again.ID == ann.ID {
			t.Error("the new user is the deleted one")
		}
	})
}

func TestUsers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newTeam(t, db, "ann", "bob", "eve")
		must.Get(s.CreateOrganization(t.Context(), "research", "bob"))(t)
		must.Get(s.Authenticate(t.Context(), s.tokens["bob"]))(t) // records the use
		var logins []string
		for after, more := "", true; more; {
			var list []identity.UserSummary
			var err error
			if list, more, err = s.Users(t.Context(), "", after, 3); err != nil {
				t.Fatal(err)
			}
			for _, u := range list {
				after = u.Login
				logins = append(logins, u.Login)
				if (u.Login == "bob") == u.LastSeen.IsZero() {
					t.Errorf("%s was last seen %v", u.Login, u.LastSeen)
				}
				roles := string(must.Get(json.Marshal(u.Roles))(t))
				if want := map[string]string{"admin": `{"acme":"admin"}`, "bob": `{"acme":"member","research":"admin"}`}[u.Login]; want != "" && roles != want {
					t.Errorf("%s has the roles %s", u.Login, roles)
				}
			}
		}
		if got := strings.Join(logins, " "); got != "admin ann bob eve" {
			t.Errorf("the users are %s", got)
		}
	})
}

func TestRenameOrganization(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newTeam(t, db, "ann")
		must.Get(s.CreateOrganization(t.Context(), "research", "ann"))(t)
		must.OK(t, s.SetDefaultOrg(t.Context(), must.Get(s.UserByLogin(t.Context(), "ann"))(t).ID, "acme"))
		p := identity.Operator()
		rename := func(name, to string, want fault.Kind) {
			t.Helper()
			o, err := s.Named(t.Context(), name)
			if err == nil {
				o, err = s.RenameOrganization(t.Context(), p, o.ID, to)
			}
			if fault.KindOf(err) != want || err == nil && o.Name != to {
				t.Errorf("renaming %s to %s: %+v, %v; want an error of kind %q", name, to, o, err, want)
			}
		}
		find := func(name string) string {
			o, err := store.Read(t.Context(), db, func(tx *store.Tx) (store.Organization, error) { return tx.OrganizationByName(name) })
			must.OK(t, store.IgnoreMissing(err))
			return o.ID
		}
		rename("acme", "research", fault.KindConflict)
		rename("acme", "RESEARCH", fault.KindConflict)
		rename("acme", "acme", fault.KindInvalid)
		rename("acme", "a/b", fault.KindInvalid)
		rename("acme", "api", fault.KindInvalid)
		rename("none", "other", fault.KindNotFound)
		rename("acme", "umbrella", "")
		if find("umbrella") != s.acme.ID || find("acme") != s.acme.ID || find("ACME") != s.acme.ID {
			t.Error("the names do not find the organization")
		}
		if got := s.last(s.acme.ID); got != `organization.renamed umbrella {"from":"acme"}` {
			t.Errorf("the audit log ends with %s", got)
		}
		if u := must.Get(s.UserByLogin(t.Context(), "ann"))(t); u.DefaultOrg != "umbrella" {
			t.Errorf("the default organization is %s", u.DefaultOrg)
		}
		// No other organization can have a former name, in any way.
		if _, err := s.CreateOrganization(t.Context(), "Acme", "ann"); fault.KindOf(err) != fault.KindConflict {
			t.Errorf("an organization with a former name: %v", err)
		}
		rename("research", "acme", fault.KindConflict)
		// The former name can be used in the name of the organization, and return.
		rename("acme", "third", "")
		rename("umbrella", "acme", "")
		list := must.Get(s.Organizations(t.Context()))(t)
		if len(list) != 2 || list[0].Name != "acme" || list[0].DisplayName != "acme" {
			t.Errorf("the organizations are %+v", list)
		}
		if find("third") != s.acme.ID || find("umbrella") != s.acme.ID {
			t.Error("the former names do not find the organization")
		}
		// A name can change only in its case, and then again.
		rename("acme", "Acme", "")
		rename("Acme", "fourth", "")
		if find("acme") != s.acme.ID || find("Acme") != s.acme.ID {
			t.Error("a former name in another case does not find the organization")
		}
		rename("fourth", "acme", "")
		// Only the operator renames an organization any number of times.
		p = identity.Principal{}
		rename("research", "r1", "")
		for i := 2; i <= 20; i++ {
			rename(fmt.Sprintf("r%d", i-1), fmt.Sprintf("r%d", i), "")
		}
		rename("r20", "r21", fault.KindConflict)
		p = identity.Operator()
		rename("r20", "r21", "")
	})
}

// TestActionsOfOperators checks how the audit log names an operator.
func TestActionsOfOperators(t *testing.T) {
	db := storetest.SQLite(t)
	s := newTeam(t, db, "ann")
	ctx := audit.By(t.Context(), audit.WayCommand, audit.Actor{Kind: audit.ActorOperator, ID: "0", Name: "root"})
	must.Get(s.DisableUser(ctx, identity.Operator(), "ann", ""))(t)
	list := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) ([]store.AuditEntry, error) { return tx.AuditEntries(store.AuditFilter{Limit: 1}) }))(t)
	if e := list[0]; e.Way != "command" || e.Actor != "root" || e.ActorKind != "operator" {
		t.Errorf("got %+v", e)
	}
}

// TestLoginsOfDeletedUsers checks that no user can take the login that histories will give to another one.
func TestLoginsOfDeletedUsers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newTeam(t, db, "bob", "ann-deleted-soon")
		remains := "bob-deleted-" + must.Get(s.UserByLogin(t.Context(), "bob"))(t).ID[:8]
		for _, login := range []string{remains, strings.ToUpper(remains)} {
			if _, err := s.CreateUser(t.Context(), identity.NewUser{Login: login}); fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), "reserved for deleted users") {
				t.Errorf("a user with the login %s: %v", login, err)
			}
		}
		if p := must.Get(s.FromProvider(t.Context(), grace(func(e *identity.External) { e.Login = remains })))(t); p.User.Login != "user" {
			t.Errorf("a user from a provider has the login %s", p.User.Login)
		}
		must.Get(s.DeleteUser(t.Context(), identity.Operator(), "bob", ""))(t)
	})
}
