package stacks_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// keeping makes the server keep deleted stacks for a time.
func (s *stackTest) keeping(d time.Duration) *stackTest {
	s.t.Helper()
	secrets, err := keyring.Open(s.t.Context(), s.db, bytes.Repeat([]byte{7}, 32))
	s.must(err)
	s.service = stacks.New(s.db, stacks.Options{Log: storetest.Log(), Secrets: secrets, KeepDeleted: d})
	return s
}

// fill gives the stack two versions, a secret, tags, a configuration, settings, a schedule and a webhook. It returns
// the secret's ciphertext.
func (s *stackTest) fill() []byte {
	s.t.Helper()
	s.importState("a")
	s.importState("a", "b")
	s.stack = s.reloaded()
	secret, err := s.service.Encrypt(s.t.Context(), s.stack, []byte("hidden"))
	s.must(err)
	s.must(s.service.SetConfig(s.t.Context(), s.stack, `{"key":"value"}`))
	s.must(s.db.Write(s.t.Context(), s.stack.Scope(), func(tx *store.Tx) error {
		return errors.Join(
			tx.SetStackTag(s.stack.ID, "color", "red"),
			tx.SaveDeploymentSettings(store.DeploymentSettings{StackID: s.stack.ID, Document: `{"x":1}`, Version: 1}),
			tx.InsertSchedule(store.Schedule{ID: "schedule", StackID: s.stack.ID, Kind: store.CustomSchedule, Cron: "* * * * *", NextAt: tx.Now(), TryAt: tx.Now()}),
			tx.InsertWebhook(store.Webhook{ID: "hook", OrgID: s.stack.OrgID, OwnerID: s.stack.ID, Name: "hook", Active: true}),
		)
	}))
	return secret
}

// owned reads what belongs to the stack.
func (s *stackTest) owned(secret []byte) string {
	s.t.Helper()
	var history []string
	s.must(s.service.History(s.t.Context(), s.stack, store.UpdateFilter{}, func(e stacks.Entry) error {
		history = append(history, fmt.Sprint(e.Version, e.Kind))
		return nil
	}))
	var plain []byte
	s.must(s.service.Decrypt(s.t.Context(), s.user, s.stack, func(decrypt func([]byte) ([]byte, error)) (err error) {
		plain, err = decrypt(secret)
		return err
	}))
	var rest string
	s.must(s.db.Read(s.t.Context(), func(tx *store.Tx) error {
		st, err1 := tx.Stack(s.stack.ID)
		tags, err2 := tx.StackTags(st.ID)
		settings, err3 := tx.DeploymentSettings(st.ID)
		schedule, err4 := tx.Schedule("schedule")
		hooks, err5 := tx.Webhooks(st.OrgID, st.ID)
		rest = fmt.Sprint(st.Config, st.ResourceCount, tags, settings.Document, schedule.Cron, len(hooks))
		return errors.Join(err1, err2, err3, err4, err5)
	}))
	return fmt.Sprint(history, string(plain), rest, s.resources(s.exported(0)), s.resources(s.exported(1)))
}

func (s *stackTest) delete() store.DeletedStack {
	s.t.Helper()
	s.must(s.service.Delete(s.t.Context(), s.user, s.stack, true))
	list, err := s.service.ListDeleted(s.t.Context(), s.user, s.stack.OrgID)
	s.must(err)
	for _, d := range list {
		if d.StackID == s.stack.ID {
			return d.DeletedStack
		}
	}
	s.t.Fatalf("the deleted stack is not listed: %v", list)
	return store.DeletedStack{}
}

func (s *stackTest) restore(d store.DeletedStack, name string) (store.Stack, error) {
	return s.service.Restore(s.t.Context(), s.user, d.OrgID, d.StackID, name)
}

// TestRestore deletes a stack, and restores it with all that it had.
func TestRestore(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db).keeping(time.Hour)
		secret := s.fill()
		before := s.owned(secret)
		d := s.delete()
		if d.Name != "dev" || d.Project != "proj" || d.Version != 2 || d.ResourceCount != 2 || d.UpdateStatus != "succeeded" || d.DeletedBy == "" {
			t.Errorf("listed as %+v", d)
		}
		_, _, err := s.service.Find(t.Context(), s.user, identity.StateRead, "acme", "proj", "dev")
		s.refused(fault.KindNotFound, "does not exist", err)
		s.must(db.Read(t.Context(), func(tx *store.Tx) error {
			due, err1 := tx.DueSchedules(tx.Now(), 10)
			found, err2 := tx.Stacks(store.StackFilter{Reach: store.Reach{All: []string{s.stack.OrgID}}})
			orgs, err3 := tx.Organizations()
			count, err4 := tx.CountResources(s.stack.OrgID, store.Reach{All: []string{s.stack.OrgID}}, tx.Now().Add(time.Hour))
			if len(due)+len(found) > 0 || len(orgs) != 1 || count != 0 {
				t.Errorf("while it is deleted: due schedules %v, stacks %v, organizations %v, %d resources", due, found, orgs, count)
			}
			_, err5 := tx.Stack(s.stack.ID)
			if !errors.Is(err5, store.ErrNotFound) {
				t.Errorf("the stack is found by its id: %v", err5)
			}
			return errors.Join(err1, err2, err3, err4)
		}))
		st, err := s.restore(d, "")
		s.must(err)
		if st.ID != s.stack.ID || st.Ref() != "acme/proj/dev" {
			t.Errorf("restored as %s %s", st.ID, st.Ref())
		}
		if after := s.owned(secret); after != before {
			t.Errorf("after the restore: %s\nbefore: %s", after, before)
		}
		s.must(db.Read(t.Context(), func(tx *store.Tx) error {
			schedule, err1 := tx.Schedule("schedule")
			count, err2 := tx.CountResources(s.stack.OrgID, store.Reach{All: []string{s.stack.OrgID}}, tx.Now().Add(time.Hour))
			if !schedule.Paused || count != 2 {
				t.Errorf("the schedule is paused: %v; %d resources", schedule.Paused, count)
			}
			return errors.Join(err1, err2)
		}))
		s.importState("a", "b", "c")
		s.shows(0, "a= b= c=")
		_, err = s.restore(d, "")
		s.refused(fault.KindNotFound, "no deleted stack", err)
	})
}

// TestRestoreAsAnother restores a stack whose name another one has taken.
func TestRestoreAsAnother(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db).keeping(time.Hour)
		s.importState("a")
		first := s.delete()
		org, err := identity.New(db, storetest.Log()).Organization(t.Context(), s.user, "acme")
		s.must(err)
		old := s.stack
		s.stack, err = s.service.Create(t.Context(), s.user, stacks.NewStack{Org: org, Project: "proj", Name: "dev"})
		s.must(err)
		_, err = s.restore(first, "")
		s.refused(fault.KindConflict, "stack 'acme/proj/dev' already exists: restore the deleted stack with another name", err)
		_, err = s.restore(first, "a/b")
		s.refused(fault.KindInvalid, "is not valid", err)
		second := s.delete() // two deleted stacks of the same name
		for d, name := range map[store.DeletedStack]string{first: "dev-1", second: ""} {
			st, err := s.restore(d, name)
			s.must(err)
			if want := map[string]string{"dev-1": old.ID, "dev": second.StackID}[st.Name]; st.ID != want {
				t.Errorf("%s has the id %s, want %s", st.Ref(), st.ID, want)
			}
		}
		s.stack = old
		if text := s.exported(0); !strings.Contains(text, "urn:pulumi:dev-1::proj::a:b:C::a") {
			t.Errorf("the state does not name the new stack: %s", text)
		}
		s.shows(1, "a=")
	})
}

// TestRestoreTwice restores a stack with several callers at the same time.
func TestRestoreTwice(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db).keeping(time.Hour)
		s.importState("a")
		d := s.delete()
		errs := make([]error, 4)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { _, errs[i] = s.restore(d, []string{"", "other"}[i%2]) })
		}
		wg.Wait()
		restored := 0
		for _, err := range errs {
			if err == nil {
				restored++
			} else if fault.KindOf(err) != fault.KindNotFound {
				t.Errorf("another caller: %v", err)
			}
		}
		list, err := s.service.List(t.Context(), store.StackFilter{Reach: store.Reach{All: []string{d.OrgID}}})
		s.must(err)
		if restored != 1 || len(list) != 1 || list[0].ID != d.StackID {
			t.Errorf("%d callers restored the stack: %v", restored, list)
		}
	})
}

// purging is the context of a request that purges a stack when the request takes memory for its state.
type purging struct {
	context.Context
	purge func()
}

func (p purging) Value(key any) any {
	if fmt.Sprintf("%T", key) == "budget.shareKey" {
		p.purge()
	}
	return p.Context.Value(key)
}

// TestRestoreDuringPurge restores a stack with another name while it is purged.
func TestRestoreDuringPurge(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db).keeping(time.Hour)
		s.importState("a")
		d := s.delete()
		var purge sync.Once
		purged := false
		ctx := purging{t.Context(), func() {
			purge.Do(func() {
				s.must(s.service.Purge(t.Context(), s.user, d.OrgID, d.StackID))
				purged = true
			})
		}}
		_, err := s.service.Restore(ctx, s.user, d.OrgID, d.StackID, "other")
		s.refused(fault.KindNotFound, "no deleted stack", err)
		if !purged {
			t.Error("the stack was not purged")
		}
	})
}

// TestDeletionEndsWork deletes a stack with a running preview, and one with a running update.
func TestDeletionEndsWork(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db).keeping(time.Hour)
		called := 0
		s.service.Follow(stacks.Hooks{StackDeleted: func(tx *store.Tx, st store.Stack) error {
			_, err := tx.Stack(st.ID)
			called++
			return err
		}})
		update := s.start(stacks.KindUpdate, 0)
		s.refused(fault.KindConflict, "Another update is currently in progress", s.service.Delete(t.Context(), s.user, s.stack, true))
		s.finish(update)
		s.importState("a")
		s.refused(fault.KindInvalid, "still contains resources", s.service.Delete(t.Context(), s.user, s.stack, false))
		preview := s.start(stacks.KindPreview, 0)
		d := s.delete()
		if called != 1 {
			t.Errorf("the hook was called %d times", called)
		}
		if n, err := s.service.ExpireLeases(t.Context()); n != 0 || err != nil {
			t.Errorf("expired %d leases: %v", n, err)
		}
		_, err := s.restore(d, "")
		s.must(err)
		if u := s.reload(preview); u.Status != string(stacks.Cancelled) || u.Reason != "the stack was deleted" {
			t.Errorf("the preview is %s: %s", u.Status, u.Reason)
		}
	})
}

// blobs returns the size of the blobs of a stack's states.
func (s *stackTest) blobs(id string) int64 {
	s.t.Helper()
	n, err := s.db.Blobs().Total(s.t.Context(), states.StackBlobs(id))
	s.must(err)
	return n
}

// TestPurge purges a deleted stack by each way.
func TestPurge(t *testing.T) {
	for name, c := range map[string]struct {
		kept  time.Duration
		purge func(s *stackTest, d store.DeletedStack) error
	}{
		"administrator": {time.Hour, func(s *stackTest, d store.DeletedStack) error {
			return s.service.Purge(s.t.Context(), s.user, d.OrgID, d.StackID)
		}},
		"age": {time.Hour, func(s *stackTest, d store.DeletedStack) error {
			n, err := s.service.PurgeDeleted(s.t.Context(), d.DeletedAt)
			if err != nil || n != 0 {
				s.t.Errorf("purged %d stacks too early: %v", n, err)
			}
			_, err = s.service.PurgeDeleted(s.t.Context(), d.DeletedAt.Add(time.Microsecond))
			return err
		}},
		"interrupted": {time.Hour, func(s *stackTest, d store.DeletedStack) error {
			s.must(s.db.Write(s.t.Context(), scope.Stack(d.OrgID, d.StackID), func(tx *store.Tx) error { return tx.MarkPurged(d.StackID) }))
			_, err := s.restore(d, "")
			s.refused(fault.KindNotFound, "no deleted stack", err)
			_, err = s.service.PurgeDeleted(s.t.Context(), time.Time{})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, db *store.DB) {
				s := newStackTest(t, db).keeping(c.kept)
				s.fill()
				d := s.delete()
				if s.blobs(d.StackID) == 0 {
					t.Fatal("the deleted stack has no blobs")
				}
				s.must(c.purge(s, d))
				s.gone(d)
			})
		})
	}
}

// TestPurgeAfterAnError purges deleted stacks of which the oldest cannot be purged.
func TestPurgeAfterAnError(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db).keeping(time.Hour)
		org := store.Organization{ID: s.stack.OrgID, Name: "acme"}
		s.importState("a")
		broken := s.delete()
		s.create(org, "next")
		s.importState("a")
		next := s.delete()
		s.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			_, err1 := tx.Exec("CREATE TABLE obstacles (stack_id TEXT NOT NULL REFERENCES stacks (id))")
			_, err2 := tx.Exec("INSERT INTO obstacles VALUES ($1)", broken.StackID)
			return errors.Join(err1, err2)
		}))
		for _, want := range []int{1, 0} {
			n, err := s.service.PurgeDeleted(t.Context(), next.DeletedAt.Add(time.Microsecond))
			if n != want || err == nil || !strings.Contains(err.Error(), "purging the deleted stack acme/proj/dev: ") {
				t.Errorf("purged %d stacks, want %d: %v", n, want, err)
			}
		}
		s.gone(next)
		s.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			_, err := tx.Exec("DROP TABLE obstacles")
			return err
		}))
		_, err := s.service.PurgeDeleted(t.Context(), next.DeletedAt.Add(time.Microsecond))
		s.must(err)
		s.gone(broken)
	})
}

// gone checks that nothing remains of a stack.
func (s *stackTest) gone(d store.DeletedStack) {
	s.t.Helper()
	if n := s.blobs(d.StackID); n != 0 {
		s.t.Errorf("%d bytes of states remain", n)
	}
	_, err := s.restore(d, "")
	s.refused(fault.KindNotFound, "no deleted stack", err)
	if s.db.Shared() {
		return
	}
	for table, rows := range storetest.Contents(s.t, s.db, "audit_entries", "webhooks", "webhook_senders", "resource_changes") {
		for _, row := range rows {
			if strings.Contains(row, d.StackID) {
				s.t.Errorf("the table %s has the row %s", table, row)
			}
		}
	}
}

// TestDeleteAtOnce deletes a stack on a server that keeps no deleted stacks.
func TestDeleteAtOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		s.fill()
		s.must(s.service.Delete(t.Context(), s.user, s.stack, true))
		s.gone(store.DeletedStack{OrgID: s.stack.OrgID, StackID: s.stack.ID})
	})
}

// TestRestoreOfOthers restores and purges a deleted stack as callers who may not.
func TestRestoreOfOthers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db).keeping(time.Hour)
		s.importState("a")
		ids := identity.New(db, storetest.Log())
		_, err := ids.CreateOrganization(t.Context(), "other", identity.AdminLogin)
		s.must(err)
		s.must(db.Write(t.Context(), scope.Organization(s.stack.OrgID), func(tx *store.Tx) error {
			return tx.SetStackPermission(s.stack.OrgID, store.WritePermission)
		}))
		d := s.delete()
		other, err := ids.Organization(t.Context(), s.user, "other")
		if err != nil {
			other = store.Organization{ID: "none"}
		}
		member := func(org, role string) identity.Principal {
			t.Helper()
			token, err := ids.CreateUser(t.Context(), identity.NewUser{Login: org + "-" + role, Org: org, Role: role})
			s.must(err)
			p, err := ids.Authenticate(t.Context(), token)
			s.must(err)
			return p
		}
		for name, p := range map[string]identity.Principal{
			"writer": member("acme", "member"), "foreign administrator": member("other", "admin"),
			"job": {Kind: identity.KindJob, Org: store.Organization{ID: d.OrgID}, Scope: identity.Scope{d.StackID: identity.Manage | identity.DeleteStack}},
		} {
			for _, org := range []string{d.OrgID, other.ID, "deleted-stacks", ""} {
				_, err := s.service.Restore(t.Context(), p, org, d.StackID, "")
				s.refused(fault.KindNotFound, "no deleted stack", err)
				if err := s.service.Purge(t.Context(), p, org, d.StackID); err == nil {
					t.Errorf("%s purged the stack as one of %q", name, org)
				}
				list, err := s.service.ListDeleted(t.Context(), p, org)
				s.must(err)
				if len(list) > 0 {
					t.Errorf("%s sees deleted stacks of %q: %v", name, org, list)
				}
			}
		}
		_, err = s.service.Restore(t.Context(), s.user, "deleted-stacks", d.StackID, "")
		s.refused(fault.KindNotFound, "no deleted stack", err)

		// Who administered only the stack restores it, but does not purge it.
		owner := member("acme", "billing-manager")
		s.must(db.Write(t.Context(), scope.Stack(d.OrgID, d.StackID), func(tx *store.Tx) error {
			return tx.SaveCollaborator(store.Collaborator{StackID: d.StackID, UserID: owner.User.ID, Permission: store.AdminPermission})
		}))
		s.refused(fault.KindForbidden, "only an administrator of the organization", s.service.Purge(t.Context(), owner, d.OrgID, d.StackID))
		_, err = s.service.Restore(t.Context(), owner, d.OrgID, d.StackID, "")
		s.must(err)
	})
}

// TestListOfDeletedStacks checks that each caller sees the deleted stacks that the caller may restore.
func TestListOfDeletedStacks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db).keeping(time.Hour)
		org, user := s.stack.OrgID, func(role string, granted, byTeam store.Permission) identity.Principal {
			t.Helper()
			id := fmt.Sprint(role, granted, byTeam)
			s.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
				return errors.Join(
					tx.InsertUser(store.User{ID: id, Login: id}), tx.InsertMember(store.Member{OrgID: s.stack.OrgID, UserID: id, Role: role}),
					tx.InsertTeam(store.Team{ID: id, OrgID: s.stack.OrgID, Name: id}), tx.SaveTeamMember(store.TeamMember{TeamID: id, UserID: id}),
					tx.SaveCollaborator(store.Collaborator{StackID: s.stack.ID, UserID: id, Permission: granted}),
					tx.SaveTeamStack(store.TeamStack{StackID: s.stack.ID, TeamID: id, Permission: byTeam}),
				)
			}))
			return identity.Principal{Kind: identity.KindUser, User: store.User{ID: id}, Roles: map[string]string{s.stack.OrgID: role}}
		}
		const none, write, all = store.NoPermission, store.WritePermission, store.AdminPermission
		callers := map[string]identity.Principal{
			"administrator": s.user, "operator": identity.Operator(), "stranger": {Kind: identity.KindUser, User: store.User{ID: "x"}},
			"organization":                  {Kind: identity.KindOrg, Org: store.Organization{ID: org}},
			"organization as administrator": {Kind: identity.KindOrg, Org: store.Organization{ID: org}, Admin: true},
			"another organization":          {Kind: identity.KindOrg, Org: store.Organization{ID: "other"}, Admin: true},
			"member":                        user(identity.RoleMember, none, none),
			"writing member":                user(identity.RoleMember, write, write),
			"member with admin":             user(identity.RoleMember, all, write),
			"member in a team with admin":   user(identity.RoleMember, none, all),
			"writing collaborator":          user(identity.RoleCollaborator, write, write),
			"collaborator with admin":       user(identity.RoleCollaborator, all, none),
			"collaborator in a team":        user(identity.RoleCollaborator, write, all),
			"team that writes":              {Kind: identity.KindOrg, Org: store.Organization{ID: org}, TeamID: fmt.Sprint(identity.RoleMember, write, write)},
			"team with admin":               {Kind: identity.KindOrg, Org: store.Organization{ID: org}, TeamID: fmt.Sprint(identity.RoleMember, none, all)},
			"job":                           {Kind: identity.KindJob, Org: store.Organization{ID: org}, Scope: identity.Scope{s.stack.ID: identity.Manage}},
		}
		creator := user(identity.RoleCollaborator, none, none)
		callers["creator"] = creator
		s.must(db.Write(t.Context(), s.stack.Scope(), func(tx *store.Tx) error { return tx.SetStackOwner(s.stack.ID, creator.User.ID) }))
		d, seen := s.delete(), 0
		for _, byDefault := range []store.Permission{none, store.ReadPermission, write, all} {
			s.must(db.Write(t.Context(), scope.Organization(org), func(tx *store.Tx) error { return tx.SetStackPermission(org, byDefault) }))
			d.OrgPermission = byDefault
			for name, p := range callers {
				on, err := store.Read(t.Context(), db, func(tx *store.Tx) (identity.Principal, error) { return p.On(tx, d.Stack()) })
				s.must(err)
				want := 0
				if p.Kind != identity.KindJob && on.Can(d.Stack(), identity.Manage) {
					want = 1
				}
				list, err := s.service.ListDeleted(t.Context(), p, org)
				s.must(err)
				if len(list) != want {
					t.Errorf("%s with the permission %d by default: listed %d stacks, want %d", name, byDefault, len(list), want)
				}
				seen += want
			}
		}
		if seen != 4*9+3 {
			t.Errorf("callers saw %d lists with the stack", seen)
		}
	})
}

// TestLeaverBeforeRestore removes a member while a stack on which it has a permission is deleted.
func TestLeaverBeforeRestore(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db).keeping(time.Hour)
		ids := identity.New(db, storetest.Log())
		_, err := ids.CreateUser(t.Context(), identity.NewUser{Login: "ann", Org: "acme", Role: "member"})
		s.must(err)
		var ann store.User
		s.must(db.Write(t.Context(), s.stack.Scope(), func(tx *store.Tx) (err error) {
			if ann, err = tx.UserByLogin("ann"); err != nil {
				return err
			}
			return errors.Join(tx.SetStackOwner(s.stack.ID, ann.ID), tx.SaveCollaborator(store.Collaborator{StackID: s.stack.ID, UserID: ann.ID, Permission: store.AdminPermission}))
		}))
		d := s.delete()
		s.must(db.Write(t.Context(), scope.Organization(d.OrgID), func(tx *store.Tx) error { return tx.DeleteMember(d.OrgID, ann.ID) }))
		st, err := s.restore(d, "")
		s.must(err)
		s.must(db.Read(t.Context(), func(tx *store.Tx) error {
			granted, err1 := tx.Granted(st.ID, ann.ID, "")
			cur, err2 := tx.Stack(st.ID)
			if granted != store.NoPermission || cur.CreatedBy != "" {
				t.Errorf("the leaver has the permission %d, and created by is %q", granted, cur.CreatedBy)
			}
			return errors.Join(err1, err2)
		}))
	})
}
