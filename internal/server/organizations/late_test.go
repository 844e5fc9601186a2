package organizations_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestQuestionWithoutWrite asks what a deletion would remove, which takes long in a large organization, during the write
// of another one.
func TestQuestionWithoutWrite(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		w := newWorld(t, db)
		must.OK(t, db.Write(t.Context(), scope.Server(), func(*store.Tx) error {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			answer := make(chan error, 1)
			go func() {
				_, _, err := w.orgs.Delete(ctx, w.rival.ID, "")
				answer <- err
			}()
			if err := <-answer; fault.KindOf(err) != fault.KindInvalid {
				t.Errorf("the question: %v", err)
			}
			return nil
		}))
	})
}

// TestLateWrites makes the writes of requests that were admitted before their organization was deleted.
func TestLateWrites(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		w := newWorld(t, db)
		w.fill(w.rival)
		bob := must.Get(w.ids.UserByLogin(t.Context(), "bob"))(t)
		boss := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) (identity.Principal, error) { return identity.OfUser(tx, bob.ID) }))(t)
		stack := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) (store.Stack, error) { return tx.Stack("s-rival-0") }))(t)
		gone := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) (store.DeletedStack, error) { return tx.DeletedStack("s-rival-gone") }))(t)
		states := stacks.New(db, stacks.Options{Log: storetest.Log()})
		w.delete(w.rival, "rival", "")
		before := len(w.rows(w.rival))

		for name, write := range map[string]func() error{
			"rename": func() error {
				_, err := w.ids.RenameOrganization(t.Context(), boss, w.rival.ID, "hijacked")
				return err
			},
			"token": func() error {
				_, _, err := w.ids.CreateToken(t.Context(), identity.NewTokenSpec{Kind: store.OrgToken, Name: "late", OrgID: w.rival.ID, Admin: true})
				return err
			},
			"member": func() error {
				_, err := w.ids.AddMember(t.Context(), w.rival, identity.AdminLogin, identity.RoleAdmin)
				return err
			},
			"pool": func() error {
				_, err := pools.New(db, storetest.Log()).Create(t.Context(), boss, w.rival, "late", "")
				return err
			},
			"stack": func() error {
				_, err := states.Create(t.Context(), boss, stacks.NewStack{Org: w.rival, Project: "p", Name: "late"})
				return err
			},
			"restore": func() error { _, err := states.Restore(t.Context(), boss, w.rival.ID, gone.StackID, ""); return err },
			"config":  func() error { return states.SetConfig(t.Context(), stack, `{"a":"b"}`) },
			"free": func() error {
				return db.Write(t.Context(), scope.Claims(w.rival.ID).And(stack.Scope()), func(*store.Tx) error { return nil })
			},
		} {
			if err := write(); fault.KindOf(err) != fault.KindNotFound || !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if after := len(w.rows(w.rival)); after != before {
			t.Errorf("the deleted organization has %d rows, and had %d", after, before)
		}

		// A token that a server of an earlier version has added.
		secret, hash := identity.NewToken()
		w.write(func(tx *store.Tx) error {
			return tx.InsertToken(store.Token{ID: "late", Hash: hash, Kind: store.OrgToken, OrgID: w.rival.ID, Admin: true})
		})
		if _, err := w.ids.Authenticate(t.Context(), secret); fault.KindOf(err) != fault.KindUnauthenticated {
			t.Errorf("a token of the deleted organization: %v", err)
		}
		must.OK(t, w.orgs.Purge(t.Context()))
	})
}
