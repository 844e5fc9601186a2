package stacks_test

import (
	"encoding/json"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestTransferBeforeRelease transfers a stack between organizations of a restored server.
func TestTransferBeforeRelease(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		s.joinOther()
		ids := identity.New(db, storetest.Log())
		acme, err := ids.Organization(t.Context(), s.user, "acme")
		s.must(err)
		other, err := ids.Organization(t.Context(), s.user, "other")
		s.must(err)
		s.importState("a")
		waiting := func(orgs ...store.Organization) {
			t.Helper()
			r := recovery.Restored{Prepared: true}
			for _, o := range orgs {
				r.Organizations = append(r.Organizations, recovery.Organization{ID: o.ID})
			}
			value, err := json.Marshal(r)
			s.must(err)
			s.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.SetInstallation(recovery.Name, value) }))
			s.stack = s.reloaded()
		}
		for _, o := range []store.Organization{acme, other} {
			waiting(o)
			s.refused(fault.KindConflict, "workflow-server restore release "+o.Name, s.service.Transfer(t.Context(), s.user, s.stack, other))
		}
		waiting(acme, other)
		s.must(s.service.Transfer(t.Context(), s.user, s.stack, other))
		waiting()
		s.must(s.service.Transfer(t.Context(), s.user, s.stack, acme))
	})
}

// TestTransferAfterChanges transfers a stack with what was found before the target was deleted, and before the caller
// lost its role.
func TestTransferAfterChanges(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		s.joinOther()
		ids := identity.New(db, storetest.Log())
		other, err := ids.Organization(t.Context(), s.user, "other")
		s.must(err)
		s.importState("a")
		s.stack = s.reloaded()
		change := func(do func(tx *store.Tx) error) {
			t.Helper()
			s.must(db.Write(t.Context(), scope.Server(), do))
		}

		change(func(tx *store.Tx) error { return tx.SetRole(other.ID, s.user.User.ID, identity.RoleMember) })
		s.refused(fault.KindForbidden, "only an administrator of other may do this", s.service.Transfer(t.Context(), s.user, s.stack, other))
		change(func(tx *store.Tx) error { return tx.SetRole(other.ID, s.user.User.ID, identity.RoleAdmin) })

		change(func(tx *store.Tx) error { return tx.DeleteOrganization(other, tx.Now()) })
		s.refused(fault.KindNotFound, "the organization does not exist any more", s.service.Transfer(t.Context(), s.user, s.stack, other))
		if st := s.reloaded(); st.Ref() != "acme/proj/dev" || st.Version != s.stack.Version {
			t.Errorf("the stack is %s with version %d, want %d", st.Ref(), st.Version, s.stack.Version)
		}
	})
}
