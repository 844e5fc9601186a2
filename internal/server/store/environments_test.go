package store_test

import (
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
)

// TestEnvironmentsOfSeveralOrganizations lists environments of two organizations with the same names, in pages.
func TestEnvironmentsOfSeveralOrganizations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			for _, org := range []string{"acme", "Beta", "hidden"} {
				must.OK(t, tx.InsertOrganization(store.Organization{ID: org, Name: org, EnvironmentPermission: store.OpenEnvironment}))
				for _, name := range []string{"prod", "Dev", "a.b"} {
					must.OK(t, tx.InsertEnvironment(store.Environment{ID: org + name, OrgID: org, Project: "app", Name: name, SealedKey: []byte{1}}))
				}
				must.OK(t, tx.InsertEnvironment(store.Environment{ID: org, OrgID: org, Project: "Zoo", Name: "x", SealedKey: []byte{1}}))
			}
			return nil
		}))
		var got []string
		var after store.EnvironmentName
		for {
			page := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) ([]store.GrantedEnvironment, error) {
				return tx.Environments([]string{"acme", "Beta"}, "", "", after, 3)
			}))(t)
			for _, e := range page {
				got = append(got, e.Ref())
				after = store.EnvironmentName{Org: e.OrgName, Project: e.Project, Name: e.Name}
				if e.OrgPermission != store.OpenEnvironment {
					t.Errorf("%s: the default permission is %s", e.Ref(), e.OrgPermission)
				}
			}
			if len(page) < 3 {
				break
			}
		}
		want := []string{"Beta/Zoo/x", "Beta/app/Dev", "Beta/app/a.b", "Beta/app/prod", "acme/Zoo/x", "acme/app/Dev", "acme/app/a.b", "acme/app/prod"}
		if len(got) != len(want) {
			t.Fatalf("listed %q, want %q", got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("listed %q, want %q", got, want)
			}
		}
	})
}

// TestEnvironmentsOfLeavers removes the creator of an environment from its organization, and moves a stack that uses the
// environment to another one.
func TestEnvironmentsOfLeavers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			for _, org := range []string{"acme", "other"} {
				must.OK(t, tx.InsertOrganization(store.Organization{ID: org, Name: org}))
				must.OK(t, tx.InsertEnvironment(store.Environment{ID: "of-" + org, OrgID: org, Project: "app", Name: "prod", CreatedBy: "ann", SealedKey: []byte{1}, LastNumber: 1}))
			}
			must.OK(t, tx.InsertUser(store.User{ID: "ann", Login: "ann"}))
			must.OK(t, tx.InsertMember(store.Member{OrgID: "acme", UserID: "ann", Role: "member"}))
			must.OK(t, tx.InsertStack(store.Stack{ID: "s", OrgID: "acme", Project: "web", Name: "dev"}))
			must.OK(t, tx.SaveStackEnvironment(store.StackEnvironment{EnvironmentID: "of-acme", StackID: "s", StackVersion: 1, Version: store.LatestVersion}))
			must.OK(t, tx.DeleteMember("acme", "ann"))
			return tx.MoveStack("s", "other")
		}))
		must.OK(t, db.Read(t.Context(), func(tx *store.Tx) error {
			ours, theirs := must.Get(tx.Environment("of-acme"))(t), must.Get(tx.Environment("of-other"))(t)
			if ours.CreatedBy != "" || theirs.CreatedBy != "ann" {
				t.Errorf("the creators are %q and %q", ours.CreatedBy, theirs.CreatedBy)
			}
			if n, err := database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM stack_environments"); err != nil || n != 0 {
				t.Errorf("the stack takes %d rows with it (%v)", n, err)
			}
			return nil
		}))
	})
}
