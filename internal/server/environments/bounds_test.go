package environments_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
)

// TestManyRevisions makes the last revision that an environment can have, and deletes it, whose revisions are removed in
// several transactions, for a client that has left.
func TestManyRevisions(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db, 0)
		e := f.create(t, "prod")
		must.OK(t, db.Write(t.Context(), scope.Organization("o"), func(tx *store.Tx) error {
			for e.LastNumber = 9750; e.LastNumber < 9999; e.LastNumber++ {
				must.OK(t, tx.InsertRevision(store.EnvironmentRevision{EnvironmentID: e.ID, Number: e.LastNumber}))
				must.OK(t, tx.InsertEnvironmentImport(store.EnvironmentImport{EnvironmentID: e.ID, Number: e.LastNumber, Project: "app", Name: "base"}))
			}
			must.OK(t, tx.InsertRevision(store.EnvironmentRevision{EnvironmentID: e.ID, Number: e.LastNumber}))
			return tx.SaveEnvironment(e)
		}))
		e = f.update(t, e, "a: 1")
		if _, err := f.Update(t.Context(), f.ann, e, "a: 2", ""); fault.KindOf(err) != fault.KindInvalid {
			t.Errorf("revision %d: %v", e.LastNumber+1, err)
		}
		if same := f.update(t, e, "a: 1"); same.LastNumber != 10_000 {
			t.Errorf("an equal definition makes revision %d", same.LastNumber)
		}
		count := func(what string) int64 {
			t.Helper()
			return must.Get(store.Read(t.Context(), db, func(tx *store.Tx) (int64, error) {
				return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM "+what)
			}))(t)
		}
		must.OK(t, db.Write(t.Context(), scope.Organization("o"), func(tx *store.Tx) error {
			for _, each := range []struct {
				keep, limit   int
				want, imports int64
			}{{100, 50, 50, 200}, {190, 50, 12, 188}, {190, 50, 0, 188}} {
				n, err := tx.DeleteOldestRevisions(e.ID, each.keep, each.limit)
				must.OK(t, err)
				imports := must.Get(database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM environment_imports"))(t)
				if n != each.want || imports != each.imports {
					t.Errorf("removed %d revisions, and %d imports remain, want %+v", n, imports, each)
				}
			}
			return nil
		}))
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		must.OK(t, f.Delete(gone, f.ann, e))
		for _, what := range []string{"environments", "environment_revisions", "environment_imports"} {
			if n := count(what); n != 0 {
				t.Errorf("%s has %d rows", what, n)
			}
		}
		if n := count("audit_entries WHERE action = '" + string(audit.EnvironmentDeleted) + "'"); n != 1 {
			t.Errorf("the audit log has %d entries", n)
		}
	})
}

// TestTagsOfManyEnvironments lists tags of more environments than one statement reads.
func TestTagsOfManyEnvironments(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db, 0)
		must.OK(t, db.Write(t.Context(), scope.Organization("o"), func(tx *store.Tx) error {
			for i := range 502 {
				e := store.Environment{ID: fmt.Sprint(i), OrgID: "o", Project: "app", Name: fmt.Sprintf("e%03d", i), SealedKey: []byte{1}}
				must.OK(t, tx.InsertEnvironment(e))
				must.OK(t, tx.SaveEnvironmentTag(store.EnvironmentTag{EnvironmentID: e.ID, Name: "n", Value: fmt.Sprint(i % 3)}))
				if i >= 500 {
					must.OK(t, tx.SaveEnvironmentTag(store.EnvironmentTag{EnvironmentID: e.ID, Name: "late", Value: e.Name}))
				}
			}
			return nil
		}))
		tags := must.Get(f.AllTags(t.Context(), f.bob, "o"))(t)
		if want := map[string][]string{"n": {"0", "1", "2"}, "late": {"e500", "e501"}}; !maps.EqualFunc(tags, want, slices.Equal) {
			t.Errorf("the tags are %v, want %v", tags, want)
		}
		must.OK(t, db.Write(t.Context(), scope.Organization("o"), func(tx *store.Tx) error { return tx.SetEnvironmentPermission("o", store.NoEnvironment) }))
		if tags := must.Get(f.AllTags(t.Context(), f.bob, "o"))(t); len(tags) != 0 {
			t.Errorf("without a permission, the tags are %v", tags)
		}
	})
}

// TestCountedReferrers counts only referrers that the caller sees.
func TestCountedReferrers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db, 0)
		base := f.create(t, "base")
		f.update(t, f.create(t, "one"), "- app/base\n")
		two := f.update(t, f.create(t, "two"), "- app/base\n- app/base@1\n")
		must.OK(t, db.Write(t.Context(), scope.Organization("o"), func(tx *store.Tx) error {
			for _, st := range []store.Stack{{ID: "dev", CreatedBy: "bob"}, {ID: "hidden", CreatedBy: "ann"}, {ID: "granted"}} {
				st.OrgID, st.Project, st.Name = "o", "web", st.ID
				must.OK(t, tx.InsertStack(st))
				must.OK(t, tx.SaveStackEnvironment(store.StackEnvironment{EnvironmentID: base.ID, StackID: st.ID, StackVersion: 1, Version: "latest"}))
			}
			must.OK(t, tx.InsertTeam(store.Team{ID: "t", OrgID: "o", Name: "core"}))
			must.OK(t, tx.SaveTeamStack(store.TeamStack{TeamID: "t", StackID: "granted", Permission: store.ReadPermission}))
			must.OK(t, tx.SaveTeamEnvironment(store.TeamEnvironment{TeamID: "t", EnvironmentID: two.ID, Permission: store.ReadEnvironment}))
			return tx.SaveTeamEnvironment(store.TeamEnvironment{TeamID: "t", EnvironmentID: base.ID, Permission: store.ReadEnvironment})
		}))
		robot := identity.Principal{Kind: identity.KindOrg, Org: f.acme, TeamID: "t", Team: "core", TokenName: "robot"}
		for name, each := range map[string]struct {
			who  identity.Principal
			want store.ReferrerCounts
		}{
			"administrator": {f.ann, store.ReferrerCounts{Environments: 2, Stacks: 3}},
			"member":        {f.bob, store.ReferrerCounts{Environments: 2, Stacks: 1}},
			"team":          {robot, store.ReferrerCounts{Environments: 1, Stacks: 1}},
		} {
			list, _, err := f.List(t.Context(), each.who, "o", store.EnvironmentName{}, 1, true)
			if err != nil || len(list) != 1 || list[0].Referrers != each.want {
				t.Errorf("%s: counted %+v, want %+v (%v)", name, list, each.want, err)
			}
			filtered, _, err := f.Referrers(t.Context(), each.who, base, environments.ReferrerFilter{AllRevisions: true, Limit: 100})
			must.OK(t, err)
			counts, seen := store.ReferrerCounts{}, map[string]bool{}
			for _, r := range filtered {
				switch {
				case seen[r.ID]:
				case r.Stack:
					counts.Stacks++
				default:
					counts.Environments++
				}
				seen[r.ID] = true
			}
			if counts != each.want {
				t.Errorf("%s: listed %+v, want %+v", name, counts, each.want)
			}
		}
	})
}
