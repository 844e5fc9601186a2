package estate_test

import (
	"fmt"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestStates derives the state of a stack from each of its facts: the first that holds.
func TestStates(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		write := func(fn func(tx *store.Tx) error) {
			t.Helper()
			must.OK(t, db.Write(t.Context(), scope.Server(), fn))
		}
		write(func(tx *store.Tx) error {
			must.OK(t, tx.InsertOrganization(store.Organization{ID: "org", Name: "acme"}))
			return tx.InsertStack(store.Stack{ID: "s", OrgID: "org", Project: "p", Name: "s"})
		})
		service := estate.New(db, storetest.Log())
		const all = "held_by = 'u', active = 1, last_kind = 'update', last_result = 'failed', drift = 'found', queued = 1"
		paused := true
		for i, test := range []struct {
			facts string
			want  estate.State
			words string
		}{
			{all, estate.Running, "running"},
			{"held_by = ''", estate.Running, "running"}, // a deployment
			{"active = 0", estate.Failed, "failed"},
			{"last_result = 'cancelled'", estate.Failed, "failed"},
			{"last_result = 'succeeded'", estate.Drift, "drift found"},
			{"drift = 'none'", estate.Queued, "queued"},
			{"queued = 0", estate.Paused, "paused"},
			{"last_kind = 'update'", estate.Declared, "as declared"},
			{"last_kind = ''", estate.Never, "never updated"},
		} {
			if test.want == estate.Declared {
				paused = false
			}
			write(func(tx *store.Tx) error {
				_, err := tx.Exec("UPDATE estate SET " + test.facts)
				must.OK(t, err)
				return tx.SaveStackQueue(store.StackQueue{StackID: "s", Paused: paused, LastVersion: int64(i + 1)})
			})
			list := must.Get(service.List(t.Context(), principal(identity.RoleAdmin), "org", estate.Query{States: []estate.State{test.want}}))(t)
			if len(list.Stacks) != 1 || list.Stacks[0].State != test.want || list.Stacks[0].State.Words() != test.words || fmt.Sprint(list.States) != fmt.Sprintf("map[%s:1]", test.want) {
				t.Errorf("after %s: %+v, want %s", test.facts, list, test.want)
			}
		}
	})
}

// TestGroups reads pages of groups of which one is longer than a page.
func TestGroups(t *testing.T) {
	storetest.OnSQLite(t)
	db := storetest.SQLite(t)
	must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		must.OK(t, tx.InsertOrganization(store.Organization{ID: "org", Name: "acme"}))
		for i := range 250 {
			project := "a"
			if i >= 30 {
				project = "b"
			}
			if i >= 240 {
				project = "c"
			}
			must.OK(t, tx.InsertStack(store.Stack{ID: fmt.Sprint(i), OrgID: "org", Project: project, Name: fmt.Sprintf("%03d", i)}))
		}
		_, err := tx.Exec("UPDATE estate SET rank = 0 WHERE project = 'c' AND name = '245'")
		return err
	}))
	service := estate.New(db, storetest.Log())
	var seen []string
	for page := 1; page <= 4; page++ {
		list := must.Get(service.List(t.Context(), principal(identity.RoleAdmin), "org", estate.Query{Group: store.GroupByProject, Page: page}))(t)
		if list.All != 250 || list.More != (page < 3) {
			t.Errorf("page %d of %d stacks: more %v", page, list.All, list.More)
		}
		for _, s := range list.Stacks {
			seen = append(seen, s.Name)
		}
	}
	want := []string{"245", "240", "241", "242", "243", "244", "246", "247", "248", "249"}
	for i := range 240 {
		want = append(want, fmt.Sprintf("%03d", i))
	}
	if fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("the pages contain %v", seen)
	}
}

// TestTooManyGroups bounds the groups of a list. Its owners, which are as many, are only counted.
func TestTooManyGroups(t *testing.T) {
	storetest.OnSQLite(t)
	db := storetest.SQLite(t)
	must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		if err := tx.InsertOrganization(store.Organization{ID: "org", Name: "acme"}); err != nil {
			return err
		}
		for i := range 20_001 {
			id := fmt.Sprint(i)
			if err := tx.InsertStack(store.Stack{ID: id, OrgID: "org", Project: id, Name: "dev"}); err != nil {
				return err
			}
		}
		_, err := tx.Exec("UPDATE estate SET owner = project")
		return err
	}))
	service := estate.New(db, storetest.Log())
	for _, group := range []store.EstateGroup{store.GroupByProject, store.GroupByOwner} {
		_, err := service.List(t.Context(), principal(identity.RoleAdmin), "org", estate.Query{Group: group})
		if fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), "too many groups") {
			t.Errorf("by %s: %v", group, err)
		}
	}
	list := must.Get(service.List(t.Context(), principal(identity.RoleAdmin), "org", estate.Query{Group: store.GroupByProject, Text: "2000"}))(t)
	if list.All != 3 || len(list.Groups) != 3 {
		t.Errorf("filtered: %d stacks in %d groups, want 3", list.All, len(list.Groups))
	}
	if list = must.Get(service.List(t.Context(), principal(identity.RoleAdmin), "org", estate.Query{}))(t); list.All != 20_001 || len(list.Owners) != 50 {
		t.Errorf("not in groups: %d stacks of %d owners", list.All, len(list.Owners))
	}
}
