package invitations_test

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/invitations"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// house is a server with the organizations acme, whose second administrator is ann, and rival.
type house struct {
	*invitations.Service
	t           *testing.T
	db          *store.DB
	ids         *identity.Service
	acme, rival store.Organization
}

func newHouse(t *testing.T, db *store.DB) house {
	t.Helper()
	h := house{Service: invitations.New(db, storetest.Log()), t: t, db: db, ids: identity.New(db, storetest.Log())}
	must.OK(t, h.ids.Bootstrap(t.Context(), "acme", func(string) error { return nil }))
	h.acme = must.Get(h.ids.Organizations(t.Context()))(t)[0]
	h.rival = must.Get(h.ids.CreateOrganization(t.Context(), "rival", identity.AdminLogin))(t)
	must.Get(h.ids.CreateUser(t.Context(), identity.NewUser{Login: "ann", Org: "acme", Role: identity.RoleAdmin}))(t)
	must.Get(h.ids.CreateUser(t.Context(), identity.NewUser{Login: "bob"}))(t)
	return h
}

func (h house) user(login string) store.User {
	h.t.Helper()
	return must.Get(h.ids.UserByLogin(h.t.Context(), login))(h.t)
}

func (h house) principal(login string) identity.Principal {
	h.t.Helper()
	return must.Get(store.Read(h.t.Context(), h.db, func(tx *store.Tx) (identity.Principal, error) { return identity.OfUser(tx, h.user(login).ID) }))(h.t)
}

// invite makes an invitation of ann to acme.
func (h house) invite(role string) string {
	h.t.Helper()
	secret, _, err := h.Make(h.t.Context(), h.principal("ann"), h.acme, invitations.Spec{Role: role, For: "bob@example.com"})
	must.OK(h.t, err)
	return secret
}

// roles returns the roles of a user by the name of the organization.
func (h house) roles(login string) map[string]string {
	h.t.Helper()
	return must.Get(h.ids.UserSummary(h.t.Context(), login))(h.t).Roles
}

func (h house) refused(secret string, kind fault.Kind, text string) {
	h.t.Helper()
	for what, use := range map[string]func() error{
		"find":   func() error { _, err := h.Find(h.t.Context(), secret); return err },
		"accept": func() error { _, err := h.Accept(h.t.Context(), h.user("bob"), secret); return err },
		"sign up": func() error {
			_, err := h.SignUp(h.t.Context(), invitations.Newcomer{Login: "newcomer"}, secret)
			return err
		},
	} {
		if err := use(); fault.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
			h.t.Errorf("%s: %v, want an error of kind %q with %q", what, err, kind, text)
		}
	}
}

func (h house) age(by time.Duration) {
	h.t.Helper()
	must.OK(h.t, h.db.Write(h.t.Context(), scope.Server(), func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE invitations SET created_at = created_at - $1, expires_at = expires_at - $1", by.Microseconds())
		return err
	}))
}

func TestAccept(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		h := newHouse(t, db)
		secret := h.invite(identity.RoleBillingManager)
		list := must.Get(h.List(t.Context(), h.acme.ID))(t)
		if len(list) != 1 || list[0].Invitee != "bob@example.com" || list[0].Inviter != "ann" || strings.Contains(string(list[0].Hash), secret) {
			t.Errorf("the invitations are %+v", list)
		}
		i := must.Get(h.Accept(t.Context(), h.user("bob"), secret))(t)
		if got := h.roles("bob"); i.Organization != "acme" || len(got) != 1 || got["acme"] != identity.RoleBillingManager {
			t.Errorf("bob has the roles %v after %+v", got, i)
		}
		if u := h.user("bob"); u.DefaultOrg != "acme" {
			t.Errorf("the default organization is %q", u.DefaultOrg)
		}
		if list := must.Get(h.List(t.Context(), h.acme.ID))(t); len(list) != 0 {
			t.Errorf("a used invitation remains: %+v", list)
		}
		h.refused(secret, fault.KindNotFound, "was used or revoked") // replayed
		entries := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) ([]store.AuditEntry, error) {
			return tx.AuditEntries(store.AuditFilter{OrgID: h.acme.ID, Limit: 2})
		}))(t)
		if e := entries[0]; e.Action != "member.added" || e.Actor != "bob" || !strings.Contains(e.Detail, `"invitedBy":"ann"`) || entries[1].Action != "invitation.made" {
			t.Errorf("the audit log ends with %+v", entries)
		}

		// A member uses no invitation up, and keeps the role.
		second := h.invite(identity.RoleAdmin)
		if _, err := h.Accept(t.Context(), h.user("bob"), second); fault.KindOf(err) != fault.KindConflict {
			t.Errorf("a member who accepts: %v", err)
		}
		if got := h.roles("bob")["acme"]; got != identity.RoleBillingManager {
			t.Errorf("bob has the role %q", got)
		}
		must.Get(h.Find(t.Context(), second))(t)
	})
}

func TestSignUp(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		h := newHouse(t, db)
		secret := h.invite(identity.RoleMember)
		for login, kind := range map[string]fault.Kind{"": fault.KindInvalid, "a/b": fault.KindInvalid, "api": fault.KindInvalid, "ANN": fault.KindConflict, "bob": fault.KindConflict} {
			if _, err := h.SignUp(t.Context(), invitations.Newcomer{Login: login}, secret); fault.KindOf(err) != kind {
				t.Errorf("the login %q: %v, want an error of kind %q", login, err, kind)
			}
		}
		u := must.Get(h.SignUp(t.Context(), invitations.Newcomer{Login: "carl", Name: "Carl\x1b[31m"}, secret))(t)
		got := h.user("carl")
		if got.ID != u.ID || got.SiteAdmin || strings.Contains(got.Name, "\x1b") || h.roles("carl")["acme"] != identity.RoleMember {
			t.Errorf("created %+v with the roles %v", got, h.roles("carl"))
		}
		h.refused(secret, fault.KindNotFound, "was used")
	})
}

// TestRefusedInvitations uses links that let no visitor join any more.
func TestRefusedInvitations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		h := newHouse(t, db)
		h.refused("", fault.KindNotFound, "unknown")
		h.refused("pul-0000", fault.KindNotFound, "unknown")

		revoked := h.invite(identity.RoleMember)
		id := must.Get(h.List(t.Context(), h.acme.ID))(t)[0].ID
		if err := h.Revoke(t.Context(), h.rival, id); fault.KindOf(err) != fault.KindNotFound { // of another organization
			t.Errorf("revoking a foreign invitation: %v", err)
		}
		must.Get(h.Find(t.Context(), revoked))(t)
		must.OK(t, h.Revoke(t.Context(), h.acme, id))
		h.refused(revoked, fault.KindNotFound, "revoked")
		if err := h.Revoke(t.Context(), h.acme, id); fault.KindOf(err) != fault.KindNotFound {
			t.Errorf("revoking again: %v", err)
		}

		expired := h.invite(identity.RoleMember)
		h.age(invitations.Lifetime - time.Hour)
		must.Get(h.Find(t.Context(), expired))(t)
		h.age(2 * time.Hour)
		h.refused(expired, fault.KindNotFound, "expired")
		must.OK(t, h.Sweep(t.Context()))
		if list := must.Get(h.List(t.Context(), h.acme.ID))(t); len(list) != 1 || !invitations.Expired(list[0].Invitation, time.Now()) {
			t.Errorf("the expired invitation is missing in the list: %+v", list)
		}
		h.age(31 * 24 * time.Hour)
		must.OK(t, h.Sweep(t.Context()))
		if list := must.Get(h.List(t.Context(), h.acme.ID))(t); len(list) != 0 {
			t.Errorf("the old invitation remains: %+v", list)
		}
		if got := h.roles("bob"); len(got) != 0 {
			t.Errorf("bob has the roles %v", got)
		}
	})
}

// TestInvitersWithoutRights uses links whose makers no longer administer the organization.
func TestInvitersWithoutRights(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		h := newHouse(t, db)
		secret := h.invite(identity.RoleAdmin)
		before := h.principal("ann")
		must.OK(t, h.ids.SetRole(t.Context(), h.acme, "ann", identity.RoleMember))
		h.refused(secret, fault.KindForbidden, "ann, who made the invitation, no longer administers acme")
		void := func() bool { return must.Get(h.List(t.Context(), h.acme.ID))(t)[0].Void }
		if !void() {
			t.Error("the list does not say that the link lets no user join")
		}
		// A request that was admitted before makes none either, and a member makes none.
		if _, _, err := h.Make(t.Context(), before, h.acme, invitations.Spec{Role: identity.RoleMember}); fault.KindOf(err) != fault.KindForbidden {
			t.Errorf("an invitation of a member: %v", err)
		}
		must.OK(t, h.ids.SetRole(t.Context(), h.acme, "ann", identity.RoleAdmin))
		must.Get(h.Find(t.Context(), secret))(t)
		if void() {
			t.Error("the list says that the link of an administrator lets no user join")
		}
		must.OK(t, h.ids.RemoveMember(t.Context(), h.acme, "ann"))
		h.refused(secret, fault.KindForbidden, "no longer administers")
		must.Get(h.ids.AddMember(t.Context(), h.acme, "ann", identity.RoleAdmin))(t)
		// The links of a disabled user end for good.
		must.Get(h.ids.DisableUser(t.Context(), identity.Operator(), "ann", ""))(t)
		must.OK(t, h.ids.EnableUser(t.Context(), "ann"))
		h.refused(secret, fault.KindNotFound, "unknown")

		// An administrator of one organization cannot invite to another one.
		if _, _, err := h.Make(t.Context(), h.principal("ann"), h.rival, invitations.Spec{Role: identity.RoleMember}); fault.KindOf(err) != fault.KindForbidden {
			t.Errorf("an invitation to another organization: %v", err)
		}

		// The links of a token of the organization end with it.
		text, id, err := h.ids.CreateToken(t.Context(), identity.NewTokenSpec{Kind: store.OrgToken, Name: "robot", OrgID: h.acme.ID, Admin: true})
		must.OK(t, err)
		robot := must.Get(h.ids.Authenticate(t.Context(), text))(t)
		secret, _, err = h.Make(t.Context(), robot, h.acme, invitations.Spec{Role: identity.RoleMember})
		must.OK(t, err)
		must.Get(h.Find(t.Context(), secret))(t)
		must.OK(t, h.ids.DeleteToken(t.Context(), id, func(store.Token) bool { return true }))
		h.refused(secret, fault.KindForbidden, "no longer administers")
	})
}

// TestTwoAtOnce lets two users use a link at the same time.
func TestTwoAtOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		h := newHouse(t, db)
		must.Get(h.ids.CreateUser(t.Context(), identity.NewUser{Login: "carl"}))(t)
		secret := h.invite(identity.RoleMember)
		errs := make([]error, 2)
		users := []store.User{h.user("bob"), h.user("carl")}
		var wg sync.WaitGroup
		for i, u := range users {
			wg.Go(func() { _, errs[i] = h.Accept(t.Context(), u, secret) })
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) || len(h.roles("bob"))+len(h.roles("carl")) != 1 {
			t.Errorf("got %v; want that one joins", errs)
		}
	})
}

func TestSpecs(t *testing.T) {
	h := newHouse(t, storetest.SQLite(t))
	for _, spec := range []invitations.Spec{
		{}, {Role: "king"}, {Role: identity.RoleMember, Lifetime: -time.Second}, {Role: identity.RoleMember, Lifetime: 31 * 24 * time.Hour},
	} {
		if _, _, err := h.Make(t.Context(), h.principal("ann"), h.acme, spec); fault.KindOf(err) != fault.KindInvalid {
			t.Errorf("%+v: %v", spec, err)
		}
	}
	for range invitations.Most {
		h.invite(identity.RoleMember)
	}
	if _, _, err := h.Make(t.Context(), h.principal("ann"), h.acme, invitations.Spec{Role: identity.RoleMember}); fault.KindOf(err) != fault.KindConflict {
		t.Errorf("too many: %v", err)
	}
}
