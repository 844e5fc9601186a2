package environments_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// BenchmarkList measures pages of a list of 5 000 environments, each with three revisions, all of which import the first one.
func BenchmarkList(b *testing.B) {
	for engine, open := range map[string]func(testing.TB) *store.DB{"sqlite": storetest.SQLite, "postgres": storetest.Postgres} {
		b.Run(engine, func(b *testing.B) {
			db := open(b)
			generate(b, db, 5000)
			service := environments.New(db, environments.Options{Log: storetest.Log()})
			admin := identity.Principal{Kind: identity.KindUser, User: store.User{ID: "user"}, Roles: map[string]string{"org": identity.RoleAdmin}}
			member := identity.Principal{Kind: identity.KindUser, User: store.User{ID: "user"}, Roles: map[string]string{"org": identity.RoleMember}}
			for _, c := range []struct {
				name  string
				who   identity.Principal
				query environments.Overview
			}{
				{"by name", admin, environments.Overview{}},
				{"by change", admin, environments.Overview{Order: store.EnvironmentsByChange}},
				{"by opening", admin, environments.Overview{Order: store.EnvironmentsByOpening}},
				{"words", admin, environments.Overview{Words: []string{"project-1", "env-77"}}},
				{"words that match nothing", admin, environments.Overview{Words: []string{"nothing"}}},
				{"a tag", admin, environments.Overview{Words: []string{"team:core-7"}}},
				{"last page", admin, environments.Overview{After: &store.EnvironmentPlace{Project: "project-122", Name: "a"}}},
				{"of a member with grants, by change", member, environments.Overview{Order: store.EnvironmentsByChange}},
				{"of a member with grants, a tag", member, environments.Overview{Words: []string{"team:core-7"}}},
			} {
				c.query.Limit = 100
				b.Run(c.name, func(b *testing.B) {
					var times []time.Duration
					for b.Loop() {
						began := time.Now()
						if _, _, err := service.Overview(b.Context(), c.who, "org", c.query); err != nil {
							b.Fatal(err)
						}
						times = append(times, time.Since(began))
					}
					slices.Sort(times)
					b.ReportMetric(float64(times[0].Microseconds())/1000, "min-ms")
					b.ReportMetric(float64(times[len(times)*95/100].Microseconds())/1000, "p95-ms")
				})
			}
		})
	}
}

// generate adds environments of an organization whose members may read those of one team.
func generate(b *testing.B, db *store.DB, n int) {
	b.Helper()
	write := func(fn func(tx *store.Tx) error) {
		b.Helper()
		if err := db.Write(b.Context(), scope.Server(), fn); err != nil {
			b.Fatal(err)
		}
	}
	write(func(tx *store.Tx) error {
		for _, add := range []error{
			tx.InsertOrganization(store.Organization{ID: "org", Name: "acme"}),
			tx.InsertUser(store.User{ID: "user", Login: "ada"}),
			tx.InsertTeam(store.Team{ID: "team", OrgID: "org", Name: "core"}),
			tx.SaveTeamMember(store.TeamMember{TeamID: "team", UserID: "user", Role: identity.RoleMember}),
		} {
			if add != nil {
				return add
			}
		}
		return nil
	})
	definition := "imports:\n- project-000/env-00000\nvalues:\n" + fmt.Sprintf("%02000d", 0)
	for from := 0; from < n; from += 500 {
		write(func(tx *store.Tx) error {
			for i := from; i < from+500; i++ {
				id := fmt.Sprintf("env-%05d", i)
				e := store.Environment{
					ID: id, OrgID: "org", Project: fmt.Sprintf("project-%03d", i/40), Name: id, SealedKey: []byte{1}, LastNumber: 3, CreatedAt: tx.Now(), ModifiedAt: tx.Now().Add(time.Duration(i%97) * time.Minute),
				}
				if err := tx.InsertEnvironment(e); err != nil {
					return err
				}
				for number := int64(1); number <= 3; number++ {
					if err := tx.InsertRevision(store.EnvironmentRevision{EnvironmentID: id, Number: number, Definition: definition, CreatedBy: "ada", CreatedAt: tx.Now()}); err != nil {
						return err
					}
					if err := tx.InsertEnvironmentImport(store.EnvironmentImport{EnvironmentID: id, Number: number, Project: "project-000", Name: "env-00000", Version: store.LatestVersion}); err != nil {
						return err
					}
				}
				for tag := range 3 {
					if err := tx.SaveEnvironmentTag(store.EnvironmentTag{EnvironmentID: id, Name: []string{"team", "env", "note"}[tag], Value: fmt.Sprintf("core-%d", i%20)}); err != nil {
						return err
					}
				}
				if i%3 == 0 {
					if err := tx.SaveTeamEnvironment(store.TeamEnvironment{TeamID: "team", EnvironmentID: id, Permission: store.ReadEnvironment}); err != nil {
						return err
					}
					if err := tx.SaveEnvironmentOpening(store.EnvironmentOpening{EnvironmentID: id, OpenedAt: e.ModifiedAt, OpenedBy: "ada"}); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	write(func(tx *store.Tx) error { // as servers and autovacuum do
		_, err := tx.Exec("ANALYZE")
		return err
	})
}
