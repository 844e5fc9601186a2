package policies

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// limited is an organization with the stacks "a" and "b", the group "g", and the pack "aws" in versions 1 to 3.
func limited(t *testing.T, db *store.DB) (*Service, store.Organization) {
	t.Helper()
	o := store.Organization{ID: "o1", Name: "acme"}
	write(t, db, func(tx *store.Tx) error {
		steps := []error{
			tx.InsertOrganization(o), tx.InsertUser(store.User{ID: "u1", Login: "ann"}),
			tx.InsertStack(store.Stack{ID: "a", OrgID: "o1", Project: "p", Name: "a", CreatedBy: "u1"}), tx.InsertStack(store.Stack{ID: "b", OrgID: "o1", Project: "p", Name: "b"}),
			tx.InsertPolicyGroup(store.PolicyGroup{ID: "g", OrgID: "o1", Name: "g", EntityType: Stacks, Mode: Preventative}),
			tx.InsertPolicyGroup(store.PolicyGroup{ID: "big", OrgID: "o1", Name: "big", EntityType: Stacks, Mode: Preventative}),
			tx.InsertPolicyPack(store.PolicyPack{ID: "p1", OrgID: "o1", Name: "aws"}), tx.InsertPolicyPack(store.PolicyPack{ID: "p2", OrgID: "o1", Name: "gcp"}),
			tx.SetStackTag("a", "tier", "web"),
		}
		for i := 1; i <= 3; i++ {
			steps = append(steps, tx.InsertPackVersion(store.PolicyPackVersion{
				ID: fmt.Sprint("v", i), PackID: "p1", Number: int64(i), Tag: fmt.Sprint(i, ".0.0"), Status: store.PackComplete, Details: "{}", Policies: "[]",
				Levels: []store.PolicyLevel{{Name: "tags", Level: Mandatory}}, Blob: fmt.Sprint("policy-packs/", i), Size: 7,
			}))
		}
		for _, err := range steps {
			if err != nil {
				return err
			}
		}
		return nil
	})
	return New(db, Options{Log: storetest.Log()}), o
}

// enabled returns the versions that the group "g" enables.
func enabled(t *testing.T, db *store.DB) (out []string) {
	t.Helper()
	list, err := store.Read(t.Context(), db, func(tx *store.Tx) ([]store.EnabledPack, error) { return tx.EnabledPacks("g") })
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		out = append(out, e.PackName+" "+e.Tag)
	}
	return out
}

// TestManyChanges tests that changes of a group in one request see each other, and that their number is bounded.
func TestManyChanges(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s, o := limited(t, db)
		version := func(tag string) *PackRef { return &PackRef{Name: "aws", Tag: tag} }
		var changes []Change
		for i := range maxChanges - 1 {
			changes = append(changes, Change{AddPack: version(fmt.Sprint(i%3+1, ".0.0"))})
		}
		changes = append(changes, Change{RemovePack: version("3.0.0"), AddPack: version("3.0.0")})
		if _, err := s.ChangeGroup(t.Context(), o, "g", changes); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"aws 3.0.0"}, enabled(t, db)); diff != "" {
			t.Errorf("the group enables (-want +got):\n%s", diff)
		}
		_, err := s.ChangeGroup(t.Context(), o, "g", append(changes, Change{RemovePack: version("3.0.0")}))
		if fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), "at most 100 changes") || len(enabled(t, db)) != 1 {
			t.Errorf("too many changes: %v; the group enables %q", err, enabled(t, db))
		}
	})
}

// TestSizeOfGroups tests that what the groups of an organization enable is bounded, because an update of a stack can have
// to obey all of it.
func TestSizeOfGroups(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s, o := limited(t, db)
		config := func(size int) {
			t.Helper()
			write(t, db, func(tx *store.Tx) error {
				return tx.SaveEnabledPack(store.EnabledPack{GroupID: "big", PackID: "p1", VersionID: "v1", Config: strings.Repeat("x", size)})
			})
		}
		config(maxEnabled)
		_, err := s.ChangeGroup(t.Context(), o, "g", []Change{{AddPack: &PackRef{Name: "aws"}}})
		if fault.KindOf(err) != fault.KindInvalid || len(enabled(t, db)) != 0 {
			t.Errorf("too much for one stack: %v; the group enables %q", err, enabled(t, db))
		}
		config(maxEnabled - 200)
		if _, err := s.ChangeGroup(t.Context(), o, "g", []Change{{AddPack: &PackRef{Name: "aws"}}}); err != nil {
			t.Error(err)
		}
	})
}

// TestRemoveAllVersions tests that the removal of a pack leaves nothing but numbers and tags.
func TestRemoveAllVersions(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s, o := limited(t, db)
		if err := s.Remove(t.Context(), o, "aws", ""); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			v, err := store.Read(t.Context(), db, func(tx *store.Tx) (store.PolicyPackVersion, error) { return tx.PackVersion(fmt.Sprint("v", i+1)) })
			want := store.PolicyPackVersion{ID: fmt.Sprint("v", i+1), PackID: "p1", Number: int64(i + 1), Tag: fmt.Sprint(i+1, ".0.0"), Status: store.PackRemoved}
			if diff := cmp.Diff(want, v); diff != "" || err != nil {
				t.Errorf("a removed version, %v (-want +got):\n%s", err, diff)
			}
		}
	})
}

// TestVisibleMembers tests that a caller reads only the members of a group that the caller may see.
func TestVisibleMembers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s, o := limited(t, db)
		for role, want := range map[string]int{identity.RoleAdmin: 2, identity.RoleMember: 1, identity.RoleBillingManager: 0} {
			p := identity.Principal{Kind: identity.KindUser, User: store.User{ID: "u1"}, Roles: map[string]string{"o1": role}}
			if role == identity.RoleBillingManager {
				p.User.ID = "u2"
			}
			g, err := s.Group(t.Context(), p, o, DefaultGroup)
			if err != nil || len(g.Members) != want {
				t.Errorf("a caller with the role %s sees %+v, %v", role, g.Members, err)
			}
			var names []string
			for next := "start"; next != ""; {
				var page []Member
				page, next, err = s.MemberPage(t.Context(), p, o, DefaultGroup, strings.TrimPrefix(next, "start"), 1)
				for _, m := range page {
					names = append(names, m.Name+m.Tags["tier"])
				}
				if err != nil || len(page) > 1 {
					t.Fatalf("a page of %d stacks, %v", len(page), err)
				}
			}
			if got := strings.Join(names, " "); got != strings.Join([]string{"aweb", "b"}[:want], " ") {
				t.Errorf("a caller with the role %s reads the pages %q", role, got)
			}
		}
	})
}

// TestManyVersions tests that the versions of a pack are bounded, also with those that were removed.
func TestManyVersions(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s, o := limited(t, db)
		publish := func() error {
			_, err := s.Publish(t.Context(), identity.Principal{}, o, Draft{Name: "aws", Tag: "next"})
			return err
		}
		exec := func(statement string) {
			t.Helper()
			write(t, db, func(tx *store.Tx) error {
				_, err := tx.Exec(statement)
				return err
			})
		}
		exec(fmt.Sprintf(`INSERT INTO policy_pack_versions (id, pack_id, number, tag, status, display_name, runtime, details, policies, levels, configurable, blob, size, sha256, created_by, created_at, completed_at)
			WITH RECURSIVE n (i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			SELECT 'n' || i, pack_id, i, 't' || i, status, display_name, runtime, details, policies, levels, configurable, 'policy-packs/n' || i, size, sha256, created_by, created_at, completed_at
			FROM policy_pack_versions, n WHERE number = 1`, 10+maxVersions-4))
		exec(fmt.Sprintf("UPDATE policy_packs SET last_number = %d", 10+maxVersions))
		if err := publish(); fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), "remove old ones") {
			t.Errorf("too many versions: %v", err)
		}
		if list, err := s.Packs(t.Context(), o.ID, "aws"); err != nil || len(list) != 1 || len(list[0].Versions) != maxVersions {
			t.Errorf("the pack has %d versions, %v", len(list[0].Versions), err)
		}
		exec("UPDATE policy_pack_versions SET status = 'removed' WHERE number = 12")
		if err := publish(); err != nil {
			t.Error(err)
		}
		exec(fmt.Sprintf("UPDATE policy_packs SET last_number = %d", maxNumber))
		exec("UPDATE policy_pack_versions SET status = 'removed' WHERE number > 12")
		if err := publish(); fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), "another name") {
			t.Errorf("too many versions with removed ones: %v", err)
		}
	})
}
