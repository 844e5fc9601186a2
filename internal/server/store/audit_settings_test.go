package store_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestSettingsChanges lists the newest changes of the settings of one stack in one organization.
func TestSettingsChanges(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			for i, e := range []store.AuditEntry{
				{OrgID: "o", SubjectID: "a", Action: "settings.changed"},
				{OrgID: "o", SubjectID: "b", Action: "settings.changed"},
				{OrgID: "former", SubjectID: "a", Action: "settings.changed"},
				{OrgID: "o", SubjectID: "a", Action: "stack.created"},
				{OrgID: "o", SubjectID: "a", Action: "settings.changed"},
				{OrgID: "o", SubjectID: "a", Action: "settings.changed"},
			} {
				e.ID, e.At, e.Detail = strconv.Itoa(i), base.Add(time.Duration(i)*time.Second), "{}"
				if err := tx.InsertAuditEntry(e); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for limit, want := range map[int][]string{10: {"5", "4", "0"}, 2: {"5", "4"}} {
			list, err := store.Read(t.Context(), db, func(tx *store.Tx) ([]store.AuditEntry, error) { return tx.SettingsChanges("o", "a", limit) })
			var got []string
			for _, e := range list {
				got = append(got, e.ID)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("with limit %d: %v, %v; want %v", limit, got, err, want)
			}
		}
	})
}
