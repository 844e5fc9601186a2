package store_test

import (
	"errors"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
)

// TestListOfFewDeletedStacks checks that the list of the deleted stacks of a member without rights on most of them does
// not read all those of the organization.
func TestListOfFewDeletedStacks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		explain, numbers := "EXPLAIN QUERY PLAN ", "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
		if db.Shared() {
			explain = "EXPLAIN "
		}
		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			if err := errors.Join(tx.InsertOrganization(store.Organization{ID: "org", Name: "org"}), tx.InsertUser(store.User{ID: "user", Login: "user"})); err != nil {
				return err
			}
			for _, fill := range []string{
				numbers + ` INSERT INTO stacks (id, org_id, project, name, created_by, created_at, version, state_blob, state_schema, resource_count, active_update, last_update_at, config)
					SELECT 's' || i, 'deleted-stacks', 'p', 's' || i, 'u' || i, 0, 0, '', 0, 0, '', 0, '' FROM n`,
				numbers + ` INSERT INTO deleted_stacks (stack_id, org_id, name, deleted_by, deleted_at, purged)
					SELECT 's' || i, 'org', 'n', 'x', i, 0 FROM n`,
			} {
				if _, err := tx.Exec(fill); err != nil {
					return err
				}
			}
			return tx.SaveCollaborator(store.Collaborator{StackID: "s3", UserID: "user", Permission: store.AdminPermission})
		}))
		must.OK(t, db.Read(t.Context(), func(tx *store.Tx) error {
			reach := store.Reach{ByDefault: []string{"org"}, Creator: "u7", UserID: "user", Least: store.AdminPermission}
			list := must.Get(tx.DeletedStacks(reach, 10))(t)
			if len(list) != 2 || list[0].StackID != "s7" || list[1].StackID != "s3" {
				t.Errorf("the list is %v, want s7 and s3", list)
			}
			where, args, err := tx.WithinDeleted(reach, 10)
			must.OK(t, err)
			plan := must.Get(database.Collect(tx.Tx, func(scan database.Scan) (line string, err error) {
				var id, parent, unused any
				if db.Shared() {
					return line, scan(&line)
				}
				return line, scan(&id, &parent, &unused, &line)
			}, explain+"SELECT x.stack_id FROM deleted_stacks x JOIN stacks s ON s.id = x.stack_id "+where, args...))(t)
			text := strings.Join(plan, "\n")
			for _, whole := range []string{"SCAN x", "Seq Scan on deleted_stacks", "Seq Scan on stacks", "deleted_stacks_by_org", "deleted_stacks_by_age"} {
				if strings.Contains(text, whole) {
					t.Errorf("the plan has %q:\n%s", whole, text)
				}
			}
			if !strings.Contains(text, "stacks_by_creator") {
				t.Errorf("the plan does not use the index of creators:\n%s", text)
			}
			return nil
		}))
	})
}
