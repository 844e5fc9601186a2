package identity_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// owns gives a user two stacks of acme, one with schedules, and one of everything else. The user created only the first
// stack.
func (s team) owns(u store.User) {
	s.t.Helper()
	s.write(func(tx *store.Tx) error {
		now := tx.Now()
		for _, st := range []store.Stack{{ID: "mine", CreatedBy: u.ID}, {ID: "other"}} {
			st.OrgID, st.Project, st.Name, st.CreatedAt = s.acme.ID, "p", st.ID, now
			must.OK(s.t, tx.InsertStack(st))
		}
		for id, c := range map[string]store.Schedule{
			"c1": {StackID: "mine", Actor: "user:" + u.ID}, "c2": {StackID: "other", Actor: "member:" + u.ID},
			"fired": {StackID: "mine", Actor: "user:" + u.ID, Fired: true}, "c3": {StackID: "mine", Actor: "org:" + s.acme.ID},
		} {
			c.ID, c.Kind, c.Cron, c.CreatedAt = id, store.CustomSchedule, "0 3 * * *", now
			must.OK(s.t, tx.InsertSchedule(c))
		}
		must.OK(s.t, tx.InsertWebhook(store.Webhook{ID: "h", OrgID: s.acme.ID, Name: "chat", Actor: "user:" + u.ID, Secret: []byte{}, CreatedAt: now}))
		must.OK(s.t, tx.InsertIntegration(store.VCSIntegration{
			ID: "i", OrgID: s.acme.ID, Provider: "gitlab", Name: "main", Options: "{}", Credential: []byte{}, Secret: []byte{}, OldSecret: []byte{}, CreatedBy: u.ID, CreatedAt: now,
		}))
		must.OK(s.t, tx.InsertEnvironment(store.Environment{ID: "env", OrgID: s.acme.ID, Project: "p", Name: "prod", CreatedBy: u.ID, SealedKey: []byte{1}, CreatedAt: now}))
		for id, token := range map[string]store.Token{
			"o": {Kind: store.OrgToken, Name: "robot", CreatedBy: u.ID}, "e": {Kind: store.OrgToken, CreatedBy: u.ID, IssuerID: "x"},
			"q": {Kind: store.PoolToken, Description: "host", CreatedBy: u.ID},
		} {
			token.ID, token.Hash, token.OrgID, token.CreatedAt = id, []byte(id), s.acme.ID, now
			must.OK(s.t, tx.InsertToken(token))
		}
		return nil
	})
}

// actors returns the actors of the schedules of both stacks, by id, with an exclamation mark if one is paused.
func (s team) actors() map[string]string {
	s.t.Helper()
	actors := map[string]string{}
	must.OK(s.t, s.db.Read(s.t.Context(), func(tx *store.Tx) error {
		for _, stack := range []string{"mine", "other"} {
			for _, c := range must.Get(tx.Schedules(stack))(s.t) {
				actors[c.ID] = c.Actor
				if c.Paused {
					actors[c.ID] += "!"
				}
			}
		}
		return nil
	}))
	return actors
}

func TestHandOver(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newTeam(t, db, "ann", "bob")
		ann, bob := must.Get(s.UserByLogin(t.Context(), "ann"))(t), must.Get(s.UserByLogin(t.Context(), "bob"))(t)
		s.owns(ann)
		h := must.Get(s.Holdings(t.Context(), identity.Operator(), "ann"))(t)
		var list []string
		for _, v := range h.List {
			list = append(list, string(v.Kind)+" "+v.Organization+" "+v.Name)
		}
		want := []string{"environment acme p/prod", "integration acme gitlab/main", "schedule acme p/mine", "schedule acme p/other", "stack acme p/mine", "token acme host", "token acme robot", "webhook acme chat"}
		if diff := cmp.Diff(want, list); diff != "" || h.String() != "1 stack, 2 schedules, 1 webhook, 1 integration, 1 environment and 2 tokens" || h.Total() != 8 {
			t.Errorf("ann owns %s (-want +got):\n%s", h, diff)
		}
		site := identity.Principal{Kind: identity.KindUser, User: store.User{SiteAdmin: true}}
		for _, v := range must.Get(s.Holdings(t.Context(), site, "ann"))(t).List {
			if v.Name != "" {
				t.Errorf("an administrator of the server who does not belong to acme sees the name of %s %s", v.Kind, v.Name)
			}
		}

		// Who cannot take over, and why nothing changed.
		must.Get(s.CreateUser(t.Context(), identity.NewUser{Login: "stranger"}))(t)
		must.OK(t, s.SetStackPermission(t.Context(), s.acme.ID, store.ReadPermission))
		for to, text := range map[string]string{
			"": "name the user", "ann": "themselves", "none": "does not exist", "stranger": "stranger does not belong to acme", "bob": "bob may not deploy acme/p/other,",
		} {
			if _, err := s.HandOver(t.Context(), identity.Operator(), "ann", to); fault.KindOf(err) == "" || !strings.Contains(err.Error(), text) {
				t.Errorf("handing over to %q: %v", to, err)
			}
			if to == "" { // is permitted
				continue
			}
			if _, err := s.DisableUser(t.Context(), identity.Operator(), "ann", to); fault.KindOf(err) == "" || !strings.Contains(err.Error(), text) {
				t.Errorf("disabling in favor of %q: %v", to, err)
			}
		}
		if !s.authenticates(s.tokens["ann"]) || must.Get(s.Holdings(t.Context(), identity.Operator(), "ann"))(t).Total() != 8 {
			t.Error("a refused hand-over changed something")
		}
		must.OK(t, s.SetStackPermission(t.Context(), s.acme.ID, store.WritePermission))

		ended, err := s.DisableUser(t.Context(), identity.Operator(), "ann", "bob")
		if want := (identity.Ended{Tokens: 1, Login: "ann"}); err != nil || ended != want {
			t.Errorf("got %+v, %v; want %+v", ended, err, want)
		}
		wanted := map[string]string{"c1": "user:" + bob.ID, "c2": "member:" + bob.ID, "c3": "org:" + s.acme.ID}
		if diff := cmp.Diff(wanted, s.actors()); diff != "" {
			t.Errorf("schedules (-want +got):\n%s", diff)
		}
		if got := must.Get(s.Holdings(t.Context(), identity.Operator(), "bob"))(t); got.Total() != 8 {
			t.Errorf("bob owns %s", got)
		}
		if got := s.last(s.acme.ID); !strings.HasPrefix(got, "user.handed-over ann ") || !strings.Contains(got, `"objects":8`) || !strings.Contains(got, `"to":"bob"`) {
			t.Errorf("the audit log of acme ends with %s", got)
		}
		// An exchanged token ends by itself.
		must.OK(t, db.Read(t.Context(), func(tx *store.Tx) error {
			if e := must.Get(tx.TokenByID("e"))(t); e.CreatedBy != ann.ID {
				t.Errorf("the exchanged token was handed over: %+v", e)
			}
			return nil
		}))
		must.Get(s.DeleteUser(t.Context(), identity.Operator(), "ann", ""))(t)
	})
}

// TestSchedulesOfDisabledUsers disables a user without a successor.
func TestSchedulesOfDisabledUsers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newTeam(t, db, "ann", "bob")
		ann, bob := must.Get(s.UserByLogin(t.Context(), "ann"))(t), must.Get(s.UserByLogin(t.Context(), "bob"))(t)
		s.owns(ann)
		ended, err := s.DisableUser(t.Context(), identity.Operator(), "ann", "")
		if want := (identity.Ended{Tokens: 1, Paused: 2, Owned: 8, Login: "ann"}); err != nil || ended != want {
			t.Errorf("got %+v, %v; want %+v", ended, err, want)
		}
		paused := map[string]string{"c1": "user:" + ann.ID + "!", "c2": "member:" + ann.ID + "!", "c3": "org:" + s.acme.ID}
		if diff := cmp.Diff(paused, s.actors()); diff != "" {
			t.Errorf("schedules (-want +got):\n%s", diff)
		}
		if got := s.last(s.acme.ID); !strings.HasPrefix(got, "schedule.paused ann ") || !strings.Contains(got, `"schedules":2`) {
			t.Errorf("the audit log of acme ends with %s", got)
		}
		// The user can hand over later. The schedules stay paused until a user resumes them.
		must.Get(s.HandOver(t.Context(), identity.Operator(), "ann", "bob"))(t)
		if got := s.actors(); got["c1"] != "user:"+bob.ID+"!" {
			t.Errorf("the schedules act for %v", got)
		}
	})
}

// TestSuccessorOfLastAdministrator hands over what the last administrator of several organizations owns.
func TestSuccessorOfLastAdministrator(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newTeam(t, db, "ann", "bob")
		must.Get(s.CreateOrganization(t.Context(), "research", "ann"))(t)
		if h := must.Get(s.Holdings(t.Context(), identity.Operator(), "ann"))(t); len(h.Last) != 1 || h.Last[0] != "research" {
			t.Errorf("ann is the last administrator of %v", h.Last)
		}
		if _, err := s.DeleteUser(t.Context(), identity.Operator(), "ann", "bob"); fault.KindOf(err) != fault.KindConflict || !strings.Contains(err.Error(), "bob does not belong to research") {
			t.Errorf("a successor from outside: %v", err)
		}
		// Nor do administrators of the server take over without being members.
		if _, err := s.DeleteUser(t.Context(), identity.Operator(), "ann", identity.AdminLogin); fault.KindOf(err) != fault.KindConflict || !strings.Contains(err.Error(), "org appoint") {
			t.Errorf("an administrator of the server takes over: %v", err)
		}
		// They make no accomplice, who has a lower role, an administrator or an owner. The operator does.
		research := must.Get(s.Named(t.Context(), "research"))(t)
		root := identity.Principal{Kind: identity.KindUser, User: store.User{SiteAdmin: true}}
		for _, role := range identity.Roles()[1:] {
			must.Get(s.CreateUser(t.Context(), identity.NewUser{Login: role, Org: "research", Role: role}))(t)
			if _, err := s.HandOver(t.Context(), root, "ann", role); fault.KindOf(err) != fault.KindConflict || !strings.Contains(err.Error(), "would get more access") {
				t.Errorf("a successor with the role %s: %v", role, err)
			}
		}
		must.Get(s.CreateUser(t.Context(), identity.NewUser{Login: "peer", Org: "research", Role: identity.RoleAdmin}))(t)
		s.owns(must.Get(s.UserByLogin(t.Context(), "ann"))(t))
		must.Get(s.AddMember(t.Context(), s.acme, "stack-collaborator", identity.RoleCollaborator))(t)
		if _, err := s.HandOver(t.Context(), root, "ann", "stack-collaborator"); fault.KindOf(err) != fault.KindConflict || !strings.Contains(err.Error(), "stack-collaborator in acme") {
			t.Errorf("an owner who is a stack collaborator: %v", err)
		}
		must.OK(t, s.Appoint(t.Context(), research, identity.AdminLogin))
		must.Get(s.DeleteUser(t.Context(), identity.Operator(), "ann", identity.AdminLogin))(t)
		boss := must.Get(s.UserByLogin(t.Context(), identity.AdminLogin))(t)
		roles := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) (map[string]string, error) { return tx.RolesOf(boss.ID) }))(t)
		if len(roles) != 2 || roles[s.acme.ID] != identity.RoleAdmin {
			t.Errorf("the successor has the roles %v", roles)
		}
	})
}

// TestHandOverOfDeletedStacks hands over a deleted stack with a schedule. In the organization of another one, the
// successor is a stranger.
func TestHandOverOfDeletedStacks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newTeam(t, db, "ann", "bob")
		ann, bob := must.Get(s.UserByLogin(t.Context(), "ann"))(t), must.Get(s.UserByLogin(t.Context(), "bob"))(t)
		must.Get(s.CreateOrganization(t.Context(), "research", identity.AdminLogin))(t)
		research := must.Get(s.Named(t.Context(), "research"))(t)
		s.write(func(tx *store.Tx) error {
			now := tx.Now()
			must.OK(t, tx.InsertMember(store.Member{OrgID: research.ID, UserID: ann.ID, Role: identity.RoleMember, CreatedAt: now}))
			for id, orgID := range map[string]string{"near": s.acme.ID, "far": research.ID} {
				must.OK(t, tx.InsertStack(store.Stack{ID: id, CreatedBy: ann.ID, OrgID: orgID, Project: "p", Name: id, CreatedAt: now}))
				must.OK(t, tx.InsertSchedule(store.Schedule{ID: "of-" + id, StackID: id, Actor: "user:" + ann.ID, Kind: store.CustomSchedule, Cron: "0 3 * * *", CreatedAt: now}))
				must.OK(t, tx.DeleteStack(id, "ann"))
			}
			return nil
		})
		must.Get(s.DisableUser(t.Context(), identity.Operator(), "ann", "bob"))(t)
		s.write(func(tx *store.Tx) error {
			for id, want := range map[string][2]string{"near": {bob.ID, "user:" + bob.ID}, "far": {"", "user:" + ann.ID}} {
				must.OK(t, tx.RestoreStack(must.Get(tx.DeletedStack(id))(t), id))
				st, c := must.Get(tx.Stack(id))(t), must.Get(tx.Schedule("of-"+id))(t)
				if st.CreatedBy != want[0] || c.Actor != want[1] || !c.Paused {
					t.Errorf("the restored stack %s belongs to %q, and its schedule acts for %q (paused: %t); want %q", id, st.CreatedBy, c.Actor, c.Paused, want)
				}
			}
			return nil
		})
	})
}

// TestHandOverBesideOtherSchedules hands over to a user with a schedule in an organization that this user has left.
func TestHandOverBesideOtherSchedules(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newTeam(t, db, "ann", "bob")
		ann, bob := must.Get(s.UserByLogin(t.Context(), "ann"))(t), must.Get(s.UserByLogin(t.Context(), "bob"))(t)
		must.Get(s.CreateOrganization(t.Context(), "research", identity.AdminLogin))(t)
		research := must.Get(s.Named(t.Context(), "research"))(t)
		s.owns(ann)
		s.write(func(tx *store.Tx) error {
			must.OK(t, tx.InsertStack(store.Stack{ID: "left", OrgID: research.ID, Project: "p", Name: "left", CreatedAt: tx.Now()}))
			return tx.InsertSchedule(store.Schedule{ID: "l", StackID: "left", Actor: "user:" + bob.ID, Kind: store.CustomSchedule, Cron: "0 3 * * *", CreatedAt: tx.Now()})
		})
		must.Get(s.HandOver(t.Context(), identity.Operator(), "ann", "bob"))(t)
		if got := s.actors(); got["c1"] != "user:"+bob.ID || got["c2"] != "member:"+bob.ID {
			t.Errorf("the schedules act for %v", got)
		}
	})
}
