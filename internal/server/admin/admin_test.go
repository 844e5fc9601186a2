package admin_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/signin"
	"workflowagent/internal/server/organizations"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// site is a server with the organization acme.
type site struct {
	*admin.Service
	t   *testing.T
	db  *store.DB
	ids *identity.Service
}

func newSite(t *testing.T, db *store.DB) site {
	t.Helper()
	ids := identity.New(db, storetest.Log())
	must.OK(t, ids.Bootstrap(t.Context(), "acme", func(string) error { return nil }))
	return site{t: t, db: db, ids: ids, Service: admin.New(db, admin.Services{
		Organizations: organizations.New(db, storetest.Log(), nil, 150),
		Identity:      ids, Sessions: signin.New(db, signin.Options{Log: storetest.Log(), Identity: ids}), Pools: pools.New(db, storetest.Log()),
		Grants: grants.New(db), Environments: environments.New(db, environments.Options{Log: storetest.Log()}),
		Stacks: stacks.New(db, stacks.Options{Log: storetest.Log(), KeepDeleted: time.Hour}), Console: "https://console.test",
	})}
}

// do runs an operation that succeeds.
func do[Q, A any](s site, o admin.Operation[Q, A], q Q) A {
	s.t.Helper()
	return must.Get(o.Do(admin.By(s.t.Context(), os.Getuid(), ""), s, q))(s.t)
}

// refuses runs an operation that fails with an error of a kind.
func refuses[Q, A any](s site, o admin.Operation[Q, A], q Q, kind fault.Kind, text string) {
	s.t.Helper()
	if _, err := o.Do(s.t.Context(), s, q); fault.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
		s.t.Errorf("%+v: got %v; want an error of kind %q with %q", q, err, kind, text)
	}
}

func (s site) principal(token string) (identity.Principal, error) {
	return s.ids.Authenticate(s.t.Context(), token)
}

func TestPools(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		created := do(s, admin.CreatePool, admin.NewPool{Name: "production", Description: "big"})
		if p, err := s.principal(created.Token); err != nil || p.PoolID != created.ID || created.Organization != "acme" {
			t.Fatalf("the token is of %+v, %v", p, err)
		}
		refuses(s, admin.CreatePool, admin.NewPool{Name: "production"}, fault.KindConflict, "already has an agent pool")
		refuses(s, admin.CreatePool, admin.NewPool{Name: "x", Organization: "none"}, fault.KindNotFound, `"none" does not exist`)
		do(s, admin.CreateOrganization, admin.NewOrganization{Name: "research", Admin: "admin"})
		refuses(s, admin.CreatePool, admin.NewPool{Name: "x"}, fault.KindInvalid, "--org: acme, research")
		do(s, admin.CreatePool, admin.NewPool{Name: "x", Organization: "research"})
		list := do(s, admin.ListPools, admin.PoolsOf{})
		if len(list) != 2 || list[0].Name != "production" || !list[0].Default || list[0].Description != "big" || list[1].Organization != "research" || list[0].LastSeen != nil {
			t.Errorf("the pools are %+v", list)
		}
		if list := do(s, admin.ListPools, admin.PoolsOf{Organization: "research"}); len(list) != 1 || list[0].Name != "x" {
			t.Errorf("the pools are %+v", list)
		}
		second := do(s, admin.AddPoolToken, admin.NewPoolToken{Organization: "acme", Pool: created.ID, Description: "host", Lifetime: time.Hour})
		if p, err := s.principal(second.Token); err != nil || p.PoolID != created.ID {
			t.Errorf("the further token is of %+v, %v", p, err)
		}
		refuses(s, admin.AddPoolToken, admin.NewPoolToken{Organization: "acme", Pool: "x"}, fault.KindNotFound, `no agent pool "x"`)

		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			st := store.Stack{ID: "s", OrgID: must.Get(tx.OrganizationByName("acme"))(t).ID, Project: "p", Name: "s", CreatedAt: tx.Now()}
			must.OK(t, tx.InsertStack(st))
			return tx.SaveDeploymentSettings(store.DeploymentSettings{StackID: "s", Document: `{"agentPoolID":"` + created.ID + `"}`, PoolID: created.ID, UpdatedAt: tx.Now()})
		}))
		refuses(s, admin.DeletePool, admin.OldPool{Organization: "acme", Pool: "production"}, fault.KindConflict, "1 stacks select it in their settings; use --force")
		if old := do(s, admin.DeletePool, admin.OldPool{Organization: "acme", Pool: "production", Force: true}); old.Name != "production" {
			t.Errorf("deleted %+v", old)
		}
		refuses(s, admin.DeletePool, admin.OldPool{Organization: "acme", Pool: "production"}, fault.KindNotFound, "no agent pool")
		if _, err := s.principal(created.Token); fault.KindOf(err) != fault.KindUnauthenticated {
			t.Errorf("the token of a deleted pool: %v", err)
		}
	})
}

func TestUsersAndTokens(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		created := do(s, admin.CreateUser, admin.NewUser{Login: "ann", Organization: "acme", Role: identity.RoleMember})
		if p, err := s.principal(created.Token); err != nil || p.User.ID != created.ID || p.User.Name != "ann" {
			t.Fatalf("the token is of %+v, %v", p, err)
		}
		refuses(s, admin.CreateUser, admin.NewUser{Login: "a b"}, fault.KindInvalid, "not valid")
		refuses(s, admin.CreateUser, admin.NewUser{Login: "Ann"}, fault.KindConflict, "already exists")
		refuses(s, admin.CreateUser, admin.NewUser{Login: "x", Organization: "none", Role: identity.RoleMember}, fault.KindNotFound, `"none"`)
		refuses(s, admin.CreateUser, admin.NewUser{Login: "x", Organization: "acme", Role: "king"}, fault.KindInvalid, "king")

		token := do(s, admin.CreateToken, admin.NewToken{User: "ann", Description: "laptop", Lifetime: time.Hour})
		refuses(s, admin.CreateToken, admin.NewToken{User: "none"}, fault.KindNotFound, `"none"`)
		refuses(s, admin.CreateToken, admin.NewToken{User: "ann", Lifetime: 200 * 365 * 24 * time.Hour}, fault.KindInvalid, "100 years")
		pool := do(s, admin.CreatePool, admin.NewPool{Name: "p"})
		tokens := func(q admin.TokensOf) (ids []string) {
			t.Helper()
			for _, e := range must.Get(admin.All(t.Context(), s, admin.ListTokens, q, admin.TokensOf.Next))(t) {
				ids = append(ids, fmt.Sprintf("%s of %s%s%s", e.Kind, e.User, e.Organization, e.Pool))
			}
			return ids
		}
		for want, q := range map[string]admin.TokensOf{
			"pool of acmep, personal of ann, personal of ann, personal of admin": {},
			"personal of ann, personal of ann":                                   {User: "ann"},
			"pool of acmep":                                                      {Kind: "pool"},
			"personal of admin":                                                  {Kind: "personal", CreatedBy: "admin"},
			"":                                                                   {Organization: "acme", Kind: "team"},
		} {
			if got := strings.Join(tokens(q), ", "); got != want {
				t.Errorf("%+v: %s, want %s", q, got, want)
			}
		}
		refuses(s, admin.ListTokens, admin.TokensOf{User: "none"}, fault.KindNotFound, `"none"`)
		refuses(s, admin.ListTokens, admin.TokensOf{Kind: "job"}, fault.KindInvalid, "organization, personal, pool, team")
		first := do(s, admin.ListTokens, admin.TokensOf{User: "ann"}).Entries[0]
		if first.ID != token.ID || first.Description != "laptop" || first.Expires == nil || first.LastUsed != nil || first.CreatedBy != "ann" {
			t.Errorf("the token is %+v", first)
		}

		do(s, admin.RevokeToken, admin.OldToken{ID: token.ID})
		if _, err := s.principal(token.Token); fault.KindOf(err) != fault.KindUnauthenticated {
			t.Errorf("a revoked token: %v", err)
		}
		ended := make(chan string, 1)
		defer db.Subscribe(identity.PoolTokenTopic, func(payload string) { ended <- payload })()
		do(s, admin.RevokeToken, admin.OldToken{ID: do(s, admin.ListTokens, admin.TokensOf{Kind: "pool"}).Entries[0].ID})
		<-ended // so that open polls end
		if _, err := s.principal(pool.Token); fault.KindOf(err) != fault.KindUnauthenticated {
			t.Errorf("a revoked token of a pool: %v", err)
		}
		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			return tx.InsertToken(store.Token{ID: "job", Hash: []byte("h"), Kind: store.JobToken, CreatedAt: tx.Now()})
		}))
		for _, id := range []string{token.ID, "none", "job"} {
			refuses(s, admin.RevokeToken, admin.OldToken{ID: id}, fault.KindNotFound, "does not exist")
		}
	})
}

func TestAccessOfUsers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		do(s, admin.CreateUser, admin.NewUser{Login: "ann", Organization: "acme", Role: identity.RoleMember})
		link := do(s, admin.MakeSignInLink, admin.Login{Login: "ann"})
		key, ok := strings.CutPrefix(link.Path, "/-/login/link?key=")
		sessions := signin.New(db, signin.Options{Log: storetest.Log()})
		proof, err := sessions.UseLink(t.Context(), key, "192.0.2.1")
		if !ok || err != nil || link.Console != "https://console.test" {
			t.Fatalf("the link is %+v, %v", link, err)
		}
		open := func() {
			t.Helper()
			_, _, err := sessions.Open(t.Context(), proof, "192.0.2.1", "Firefox")
			must.OK(t, err)
		}
		open()
		list := do(s, admin.ListSessions, admin.Login{Login: "ann"})
		if len(list) != 1 || list[0].Way != "link" || list[0].Address != "192.0.2.1" || list[0].Agent != "Firefox" || list[0].Ends.Before(list[0].Created) {
			t.Errorf("the sessions are %+v", list)
		}
		if ended := do(s, admin.EndSessions, admin.Login{Login: "ann"}); ended.Sessions != 1 || ended.Login != "ann" {
			t.Errorf("ended %+v", ended)
		}
		if list := do(s, admin.ListSessions, admin.Login{Login: "ann"}); len(list) != 0 {
			t.Errorf("the sessions are %+v", list)
		}
		open()
		if ended := do(s, admin.DisableUser, admin.Leaving{Login: "ann"}); ended != (admin.Ended{Sessions: 1, Tokens: 1, Login: "ann"}) {
			t.Errorf("ended %+v", ended)
		}
		if e := lastEntry(s); e.Way != "command" || e.ActorKind != "operator" || e.Action != "user.disabled" {
			t.Errorf("the audit log ends with %+v", e)
		}
		refuses(s, admin.MakeSignInLink, admin.Login{Login: "ann"}, fault.KindConflict, "disabled")
		refuses(s, admin.CreateToken, admin.NewToken{User: "ann"}, fault.KindConflict, "disabled")
		if u := do(s, admin.ListUsers, admin.UsersAfter{}).Entries[1]; u.Login != "ann" || u.Disabled == nil || u.Roles["acme"] != identity.RoleMember {
			t.Errorf("the user is %+v", u)
		}
		do(s, admin.EnableUser, admin.Login{Login: "ann"})
		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			org := must.Get(tx.OrganizationByName("acme"))(t)
			return tx.InsertStack(store.Stack{ID: "s", OrgID: org.ID, Project: "p", Name: "s", CreatedBy: must.Get(tx.UserByLogin("ann"))(t).ID, CreatedAt: tx.Now()})
		}))
		holdings := do(s, admin.ListHoldings, admin.Login{Login: "ann"})
		if want := []admin.Holding{{Kind: "stack", Organization: "acme", Name: "p/s", ID: "s"}}; !slices.Equal(holdings.Owned, want) || holdings.Total != 1 || holdings.Summary != "1 stack" {
			t.Errorf("ann owns %+v", holdings)
		}
		refuses(s, admin.DeleteUser, admin.Leaving{Login: "ann"}, fault.KindConflict, "ann owns 1 stack")
		refuses(s, admin.HandOver, admin.Leaving{Login: "ann"}, fault.KindInvalid, "takes over")
		if handed := do(s, admin.HandOver, admin.Leaving{Login: "ann", To: "admin"}); handed.Total != 1 {
			t.Errorf("handed over %+v", handed)
		}
		ended := do(s, admin.DeleteUser, admin.Leaving{Login: "ann"})
		if !strings.HasPrefix(ended.Login, "ann-deleted-") || len(do(s, admin.ListUsers, admin.UsersAfter{}).Entries) != 1 {
			t.Errorf("deleted %+v", ended)
		}
		do(s, admin.ListTokens, admin.TokensOf{CreatedBy: ended.Login})
		refuses(s, admin.DeleteUser, admin.Leaving{Login: "admin"}, fault.KindConflict, "last administrator")
		for _, login := range []string{"ann", "none"} {
			refuses(s, admin.ListSessions, admin.Login{Login: login}, fault.KindNotFound, login)
			refuses(s, admin.EndSessions, admin.Login{Login: login}, fault.KindNotFound, login)
			refuses(s, admin.EnableUser, admin.Login{Login: login}, fault.KindNotFound, login)
			refuses(s, admin.ListHoldings, admin.Login{Login: login}, fault.KindNotFound, login)
			refuses(s, admin.HandOver, admin.Leaving{Login: login, To: "admin"}, fault.KindNotFound, login)
		}
	})
}

func lastEntry(s site) store.AuditEntry {
	s.t.Helper()
	return must.Get(store.Read(s.t.Context(), s.db, func(tx *store.Tx) ([]store.AuditEntry, error) {
		return tx.AuditEntries(store.AuditFilter{Limit: 1})
	}))(s.t)[0]
}

func TestOrganizationsAndStacks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		o := do(s, admin.CreateOrganization, admin.NewOrganization{Name: "research", Admin: "admin"})
		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			acme := must.Get(tx.OrganizationByName("acme"))(t)
			for _, name := range []string{"a", "b", "c"} {
				must.OK(t, tx.InsertStack(store.Stack{ID: name, OrgID: acme.ID, Project: "p", Name: name, CreatedAt: tx.Now()}))
			}
			return nil
		}))
		refs := func(org string) string {
			t.Helper()
			var refs []string
			for _, st := range must.Get(admin.All(t.Context(), s, admin.ListStacks, admin.StacksOf{Organization: org}, admin.StacksOf.Next))(t) {
				refs = append(refs, st.Ref())
			}
			return strings.Join(refs, " ")
		}
		if got := refs(""); got != "acme/p/a acme/p/b acme/p/c" {
			t.Errorf("the stacks are %s", got)
		}
		if got := do(s, admin.ListStacks, admin.StacksOf{After: "acme/p/a"}); len(got.Entries) != 2 || got.Entries[0].Ref() != "acme/p/b" {
			t.Errorf("the stacks after the first are %+v", got)
		}
		renamed := do(s, admin.RenameOrganization, admin.NewName{Name: "acme", To: "umbrella"})
		if renamed.Name != "umbrella" || renamed.Stacks != 3 || strings.Join(renamed.FormerNames, " ") != "acme" {
			t.Errorf("renamed: %+v", renamed)
		}
		do(s, admin.TransferStack, admin.Transfer{Stack: "acme/p/b", To: "research"}) // the former name
		if got := refs("umbrella") + ", " + refs("research"); got != "umbrella/p/a umbrella/p/c, research/p/b" {
			t.Errorf("the stacks are %s", got)
		}
		refuses(s, admin.TransferStack, admin.Transfer{Stack: "acme/p/b", To: "research"}, fault.KindNotFound, "does not exist")
		refuses(s, admin.TransferStack, admin.Transfer{Stack: "acme/p/a", To: "none"}, fault.KindNotFound, `"none" does not exist`)
		refuses(s, admin.TransferStack, admin.Transfer{Stack: "acme/p/a", To: "umbrella"}, fault.KindInvalid, "already belongs")
		refuses(s, admin.TransferStack, admin.Transfer{Stack: "p/a", To: "research"}, fault.KindInvalid, "ORGANIZATION/PROJECT/STACK")
		list := do(s, admin.ListOrganizations, admin.None{})
		if len(list) != 2 || list[1].ID != o.ID || list[1].Stacks != 1 || list[1].Members != 1 || list[1].FormerNames == nil {
			t.Errorf("the organizations are %+v", list)
		}
	})
}

// TestPages lists more than one page.
func TestPages(t *testing.T) {
	s := newSite(t, storetest.SQLite(t))
	must.OK(t, s.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		acme := must.Get(tx.OrganizationByName("acme"))(t)
		for i := range 1200 {
			name, now := fmt.Sprintf("n%04d", i), tx.Now()
			must.OK(t, tx.InsertUser(store.User{ID: name, Login: name, CreatedAt: now}))
			must.OK(t, tx.InsertToken(store.Token{ID: name, Hash: []byte(name), Kind: store.PersonalToken, UserID: name, CreatedAt: now}))
			must.OK(t, tx.InsertStack(store.Stack{ID: name, OrgID: acme.ID, Project: "p", Name: name, CreatedAt: now}))
		}
		return nil
	}))
	ctx := t.Context()
	users := must.Get(admin.All(ctx, s, admin.ListUsers, admin.UsersAfter{}, admin.UsersAfter.Next))(t)
	tokens := must.Get(admin.All(ctx, s, admin.ListTokens, admin.TokensOf{}, admin.TokensOf.Next))(t)
	list := must.Get(admin.All(ctx, s, admin.ListStacks, admin.StacksOf{}, admin.StacksOf.Next))(t)
	seen := map[string]bool{}
	for _, u := range users {
		seen["user "+u.ID] = true
	}
	for _, token := range tokens {
		seen["token "+token.ID] = true
	}
	for _, st := range list {
		seen["stack "+st.ID] = true
	}
	if len(users) != 1201 || len(tokens) != 1201 || len(list) != 1200 || len(seen) != 3602 {
		t.Errorf("listed %d users, %d tokens and %d stacks, of which %d differ", len(users), len(tokens), len(list), len(seen))
	}
}

// strange calls an operation in the way of a program of another version.
func TestOtherVersions(t *testing.T) {
	s := newSite(t, storetest.SQLite(t))
	_, err := s.Call(context.Background(), "pool-paint", []byte("{}"))
	if _, ok := err.(*admin.UnknownError); !ok { //nolint:errorlint // it is returned as it is
		t.Errorf("an unknown operation: %v", err)
	}
	for _, request := range []string{`{"name":"p","color":"red"}`, `{"name":1}`, ``, `[]`} {
		if _, err := s.Call(t.Context(), "pool-create", []byte(request)); fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), "this version") {
			t.Errorf("%s: %v", request, err)
		}
	}
	if list := do(s, admin.ListPools, admin.PoolsOf{}); len(list) != 0 {
		t.Errorf("the pools are %+v", list)
	}
}

func TestDeletedStacks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		create := func(id, name string) {
			t.Helper()
			must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
				acme := must.Get(tx.OrganizationByName("acme"))(t)
				must.OK(t, tx.InsertStack(store.Stack{ID: id, OrgID: acme.ID, Project: "p", Name: name, CreatedAt: tx.Now()}))
				return tx.DeleteStack(id, "ann")
			}))
		}
		create("first", "s")
		list := do(s, admin.DeletedStacks, admin.DeletedIn{})
		if len(list) != 1 || list[0].Ref() != "acme/p/s" || list[0].ID != "first" || list[0].DeletedBy != "ann" || list[0].PurgedAfter.Sub(list[0].Deleted) != time.Hour {
			t.Errorf("the deleted stacks are %+v", list)
		}
		do(s, admin.CreateOrganization, admin.NewOrganization{Name: "research", Admin: "admin"})
		if list := do(s, admin.DeletedStacks, admin.DeletedIn{Organization: "research"}); len(list) > 0 {
			t.Errorf("the deleted stacks of another organization are %+v", list)
		}
		create("second", "s")
		refuses(s, admin.RestoreStack, admin.Restoration{Stack: "acme/p/s"}, fault.KindConflict, "2 deleted stacks have the name acme/p/s")
		refuses(s, admin.RestoreStack, admin.Restoration{Stack: "research/p/s"}, fault.KindNotFound, "no deleted stack has the name")
		refuses(s, admin.RestoreStack, admin.Restoration{Stack: "third"}, fault.KindNotFound, "no deleted stack has the id")
		do(s, admin.RenameOrganization, admin.NewName{Name: "acme", To: "umbrella"})
		if r := do(s, admin.RestoreStack, admin.Restoration{Stack: "first"}); r.Stack != "umbrella/p/s" {
			t.Errorf("restored %+v", r)
		}
		refuses(s, admin.RestoreStack, admin.Restoration{Stack: "acme/p/s"}, fault.KindConflict, "already exists")
		if r := do(s, admin.RestoreStack, admin.Restoration{Stack: "acme/p/s", Name: "t"}); r.Stack != "umbrella/p/t" {
			t.Errorf("restored %+v", r)
		}
		// More stacks are deleted later than a list contains.
		create("fourth", "u")
		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			const many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1001) "
			_, err1 := tx.Exec(many + `INSERT INTO stacks (id, org_id, project, name, created_by, created_at, version, state_blob, state_schema, resource_count, active_update, last_update_at, config)
				SELECT 'many' || i, 'deleted-stacks', 'p', 'many' || i, '', 0, 0, '', 0, 0, '', 0, '' FROM n`)
			_, err2 := tx.Exec(many+`INSERT INTO deleted_stacks (stack_id, org_id, name, deleted_by, deleted_at, purged)
				SELECT 'many' || i, (SELECT org_id FROM deleted_stacks WHERE stack_id = 'fourth'), 'many', 'ann', CAST($1 AS BIGINT), 0 FROM n`, tx.Now().Add(time.Minute))
			return errors.Join(err1, err2)
		}))
		refuses(s, admin.PurgeStack, admin.DeletedStackOf{Stack: "umbrella/p/many"}, fault.KindConflict, "more than 10 deleted stacks have the name umbrella/p/many: use the id of one instead of the name: many1, deleted at ")
		do(s, admin.PurgeStack, admin.DeletedStackOf{Stack: "umbrella/p/u"})
		if list := do(s, admin.DeletedStacks, admin.DeletedIn{}); len(list) != 1000 || list[0].Name != "many" {
			t.Errorf("after all: %d deleted stacks", len(list))
		}
	})
}

func TestGrants(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			acme := must.Get(tx.OrganizationByName("acme"))(t)
			for _, name := range []string{"net/prod", "web/prod", "web/dev"} {
				project, stack, _ := strings.Cut(name, "/")
				must.OK(t, tx.InsertStack(store.Stack{ID: name, OrgID: acme.ID, Project: project, Name: stack, CreatedAt: tx.Now()}))
			}
			return tx.SetStackTag("web/dev", "tier", "web")
		}))
		const net = "acme/net/prod"
		one := do(s, admin.AddGrant, admin.NewGrant{Stack: net, ToStack: "acme/web/prod"})
		project := do(s, admin.AddGrant, admin.NewGrant{Stack: net, ToProject: "web", Previews: true})
		if strings.Join(project.Readers, " ") != "acme/web/dev acme/web/prod" || !project.Previews || project.To != "all stacks of the project web" {
			t.Errorf("the grant to a project: %+v", project)
		}
		tag := do(s, admin.AddGrant, admin.NewGrant{Stack: net, ToTag: "tier=web"})
		if strings.Join(tag.Readers, " ") != "acme/web/dev" {
			t.Errorf("the grant to a tag: %+v", tag)
		}
		if list := do(s, admin.ListGrants, admin.StackNamed{Stack: net}); len(list.ReadBy) != 3 || list.ReadBy[0].ID != one.ID || len(list.Reads) != 0 || !list.ProjectReads {
			t.Errorf("read by %+v", list)
		}
		if list := do(s, admin.ListGrants, admin.StackNamed{Stack: "acme/web/dev"}); len(list.Reads) != 2 || list.Reads[0].From != net {
			t.Errorf("reads %+v", list)
		}
		do(s, admin.RemoveGrant, admin.GrantOf{Stack: net, ID: one.ID})
		refuses(s, admin.RemoveGrant, admin.GrantOf{Stack: net, ID: one.ID}, fault.KindNotFound, "has no grant")
		refuses(s, admin.AddGrant, admin.NewGrant{Stack: net, ToTag: "tier"}, fault.KindInvalid, "NAME=VALUE")
		refuses(s, admin.AddGrant, admin.NewGrant{Stack: net}, fault.KindInvalid, "name one stack")
		refuses(s, admin.AddGrant, admin.NewGrant{Stack: "net/prod", ToProject: "web"}, fault.KindInvalid, "ORGANIZATION/PROJECT/STACK")
	})
}
