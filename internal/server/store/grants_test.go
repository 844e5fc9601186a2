package store_test

import (
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
)

// TestGrantRows checks what removes grants and exclusions, and that organizations of earlier versions keep their rule.
func TestGrantRows(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			// As a server of an earlier version inserts it.
			_, err := tx.Exec("INSERT INTO organizations (id, name, display_name, created_at) VALUES ('o', 'acme', '', 1)")
			must.OK(t, err)
			if org := must.Get(tx.Organization("o"))(t); org.ProjectReads {
				t.Error("an earlier organization has the rule for stacks of one project")
			}
			for _, name := range []string{"net", "web", "app", "own"} {
				must.OK(t, tx.InsertStack(store.Stack{ID: name, OrgID: "o", Project: "p-" + name, Name: name, CreatedAt: tx.Now()}))
			}
			must.OK(t, tx.SetStackTag("app", "tier", "web"))
			for _, g := range []store.Grant{
				{ID: "1", FromID: "net", ReaderID: "web"},
				{ID: "2", FromID: "net", Project: "p-web", Previews: true},
				{ID: "3", FromID: "net", TagName: "tier", TagValue: "web"},
				{ID: "4", FromID: "web", ReaderID: "net"},
			} {
				g.CreatedAt = tx.Now().Add(time.Second)
				must.OK(t, tx.InsertGrant(store.OutputGrants, g))
			}
			web := must.Get(tx.Stack("web"))(t)
			for range 2 {
				must.OK(t, tx.AdmitToGrants(store.Admission{Stack: web, Project: "p-web"}))
			}
			must.OK(t, tx.AdmitToGrants(store.Admission{Stack: web, Tags: map[string]string{"tier": "web"}, After: tx.Now().Add(time.Hour)})) // none is that new
			return nil
		}))
		ids := func(list []store.Grant) (out string) {
			for _, g := range list {
				if out += g.ID; g.Excluded {
					out += "-"
				}
			}
			return out
		}
		check := func(of, reader, want string) {
			t.Helper()
			must.OK(t, db.Read(t.Context(), func(tx *store.Tx) error {
				given, between := ids(must.Get(tx.Grants(store.OutputGrants, of))(t)), ids(must.Get(tx.GrantsFor(reader, store.Reach{All: []string{"o"}}, 10))(t))
				if got := given + " " + between; got != want {
					t.Errorf("grants of %s and for %s: %q, want %q", of, reader, got, want)
				}
				return nil
			}))
		}
		check("net", "web", "123 12-")
		must.OK(t, db.Read(t.Context(), func(tx *store.Tx) error {
			if got := ids(must.Get(tx.GrantsFor("web", store.Reach{}, 10))(t)); got != "1" {
				t.Errorf("grants for web, for who sees no granting stack: %q, want only the one that covers it", got)
			}
			return nil
		}))
		check("net", "app", "123 3")
		check("net", "own", "123 ")
		check("web", "net", "4 4")
		must.OK(t, db.Read(t.Context(), func(tx *store.Tx) error {
			reach := store.StackFilter{Reach: store.Reach{All: []string{"o"}}, Limit: 10}
			if one, project, tag := len(must.Get(tx.Readers(store.OutputGrants, "1", reach))(t)), len(must.Get(tx.Readers(store.OutputGrants, "2", reach))(t)), len(must.Get(tx.Readers(store.OutputGrants, "3", reach))(t)); one != 1 || project != 0 || tag != 1 {
				t.Errorf("the grants cover %d, %d and %d stacks", one, project, tag)
			}
			return nil
		}))
		admit := func(to string, tags map[string]string, reach store.Reach) {
			t.Helper()
			must.OK(t, db.Write(t.Context(), scope.Organization("o"), func(tx *store.Tx) error {
				return tx.AdmitToGrants(store.Admission{Stack: must.Get(tx.Stack(to))(t), Project: "p-" + to, Tags: tags, Reach: reach})
			}))
		}
		one := func(id string) store.Reach { return store.Reach{One: []string{"o"}, StackID: id} }
		admit("web", nil, one("app"))
		check("net", "web", "123 12-")
		admit("web", nil, one("net"))
		check("net", "web", "123 12")
		admit("web", nil, store.Reach{One: []string{"other"}, StackID: "net"})
		check("net", "web", "123 12-")
		admit("app", map[string]string{"tier": "web"}, store.Reach{})
		check("net", "app", "123 3-")
		admit("app", map[string]string{"tier": "web"}, store.Reach{All: []string{"o"}})
		// A deleted stack gives and reads nothing, and a purged one leaves nothing behind.
		web := scope.Stack("o", "web")
		must.OK(t, db.Write(t.Context(), web, func(tx *store.Tx) error { return tx.DeleteStack("web", "ada") }))
		check("net", "web", "123 ")
		check("web", "net", " ")
		must.OK(t, db.Write(t.Context(), web, func(tx *store.Tx) error { return tx.PurgeStack("web") }))
		for table, want := range map[string]int64{"stack_grants": 2, "grant_exclusions": 0} {
			got := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) (int64, error) { return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM "+table) }))(t)
			if got != want {
				t.Errorf("after the purge, %s has %d rows, want %d", table, got, want)
			}
		}
		must.OK(t, db.Write(t.Context(), scope.Organization("o"), func(tx *store.Tx) error { return tx.ClearGrants("net") }))
		check("net", "app", " ")
	})
}
