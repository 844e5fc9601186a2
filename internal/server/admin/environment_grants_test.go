package admin_test

import (
	"slices"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestEnvironmentGrants gives and ends grants of an environment on the server's machine.
func TestEnvironmentGrants(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		const prod = "acme/app/prod"
		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			org := must.Get(tx.OrganizationByName("acme"))(t)
			must.OK(t, tx.InsertStack(store.Stack{ID: "web", OrgID: org.ID, Project: "web", Name: "prod", CreatedAt: tx.Now()}))
			for _, name := range []string{"prod", "base"} {
				must.OK(t, tx.InsertEnvironment(store.Environment{ID: name, OrgID: org.ID, Project: "app", Name: name, LastNumber: 1, CreatedAt: tx.Now(), ModifiedAt: tx.Now()}))
			}
			return tx.InsertEnvironmentImport(store.EnvironmentImport{EnvironmentID: "prod", Number: 1, Project: "app", Name: "base", Version: store.LatestVersion})
		}))
		one := do(s, admin.AddEnvironmentGrant, admin.NewEnvironmentGrant{Environment: prod, ToStack: "web/prod", Previews: true})
		if one.From != prod || one.To != "acme/web/prod" || !one.Previews || !slices.Equal(one.Ungranted, []string{"acme/app/base"}) {
			t.Errorf("the grant to a stack: %+v", one)
		}
		tag := do(s, admin.AddEnvironmentGrant, admin.NewEnvironmentGrant{Environment: prod, ToTag: "tier=web"})
		if len(tag.Readers) != 0 {
			t.Errorf("the grant to a tag covers %q", tag.Readers)
		}
		if list := do(s, admin.ListEnvironmentGrants, admin.EnvironmentNamed{Environment: prod}); len(list.OpenedBy) != 2 || list.OpenedBy[0].ID != one.ID || list.PolicyPacks == nil {
			t.Errorf("the grants: %+v", list)
		}
		if list := do(s, admin.ListGrants, admin.StackNamed{Stack: "acme/web/prod"}); len(list.Opens) != 1 || list.Opens[0].From != prod {
			t.Errorf("the stack opens %+v", list.Opens)
		}
		do(s, admin.RemoveEnvironmentGrant, admin.EnvironmentGrantOf{Environment: prod, ID: one.ID})
		refuses(s, admin.RemoveEnvironmentGrant, admin.EnvironmentGrantOf{Environment: prod, ID: one.ID}, fault.KindNotFound, "environment 'acme/app/prod' has no grant")
		refuses(s, admin.AddEnvironmentGrant, admin.NewEnvironmentGrant{Environment: prod}, fault.KindInvalid, "whose stacks may open the environment")
		refuses(s, admin.AddEnvironmentGrant, admin.NewEnvironmentGrant{Environment: "app/prod", ToProject: "web"}, fault.KindInvalid, "ORGANIZATION/PROJECT/ENVIRONMENT")
		refuses(s, admin.ListEnvironmentGrants, admin.EnvironmentNamed{Environment: "acme/app/none"}, fault.KindNotFound, "does not exist")
	})
}
