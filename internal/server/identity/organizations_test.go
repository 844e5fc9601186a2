package identity_test

import (
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func TestCreateOrganization(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		ids := identity.New(db, storetest.Log())
		if err := ids.Bootstrap(t.Context(), "acme", func(string) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := ids.CreateUser(t.Context(), identity.NewUser{Login: "ann"}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name, admin string
			want        fault.Kind
		}{
			{"research", "nobody", fault.KindNotFound},
			{"", "ann", fault.KindInvalid},
			{"a/b", "ann", fault.KindInvalid},
			{"a.b", "ann", fault.KindInvalid},
			{"-", "ann", fault.KindInvalid},
			{"api", "ann", fault.KindInvalid},
			{strings.Repeat("a", 41), "ann", fault.KindInvalid},
			{"acme", "ann", fault.KindConflict},
			{"ACME", "ann", fault.KindConflict},
		} {
			if _, err := ids.CreateOrganization(t.Context(), c.name, c.admin); fault.KindOf(err) != c.want {
				t.Errorf("organization %q with administrator %q: %v, want an error of kind %q", c.name, c.admin, err, c.want)
			}
		}
		o, err := ids.CreateOrganization(t.Context(), "research", "ann")
		if err != nil {
			t.Fatal(err)
		}
		err = db.Read(t.Context(), func(tx *store.Tx) error {
			u, err := tx.UserByLogin("ann")
			if err != nil {
				return err
			}
			orgs, err := tx.OrganizationsOf(u.ID)
			if err != nil {
				return err
			}
			if len(orgs) != 1 || orgs[0].Name != "research" || u.DefaultOrg != "research" {
				t.Errorf("ann belongs to %v and has the default organization %q", orgs, u.DefaultOrg)
			}
			m, err := tx.Member(o.ID, u.ID)
			if err == nil && m.Role != identity.RoleAdmin {
				t.Errorf("ann has the role %q", m.Role)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if all, err := ids.Organizations(t.Context()); err != nil || len(all) != 2 {
			t.Errorf("the organizations are %v (%v)", all, err)
		}
		err = db.Read(t.Context(), func(tx *store.Tx) error {
			entries, err := tx.AuditEntries(store.AuditFilter{OrgID: o.ID, Limit: 10})
			if err == nil && (len(entries) != 1 || entries[0].Action != string(audit.OrganizationCreated)) {
				t.Errorf("the audit log contains %v", entries)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestCreationsWaitForNoOther creates users and organizations while another organization is being changed.
func TestCreationsWaitForNoOther(t *testing.T) {
	db := storetest.PostgresAt(t, storetest.PostgresDSN(t), store.Timeouts{Write: 5 * time.Second})
	ids := identity.New(db, storetest.Log())
	if err := ids.Bootstrap(t.Context(), "acme", func(string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	err := db.Write(t.Context(), scope.Organization("other"), func(*store.Tx) error {
		_, err := ids.CreateUser(t.Context(), identity.NewUser{Login: "ann", Org: "acme", Role: identity.RoleMember})
		if err == nil {
			_, err = ids.CreateOrganization(t.Context(), "research", "ann")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
