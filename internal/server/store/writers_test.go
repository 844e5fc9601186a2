package store_test

import (
	"errors"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

// TestWritersOfOneRow checks that a write of one part of a row keeps what another write has stored in the
// others since the row was read.
func TestWritersOfOneRow(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		integration, repo := vcsFixture(t, db)
		report := store.VCSReport{ID: "report", IntegrationID: integration.ID, RepoID: repo.ID, Context: "pulumi"}
		update := store.Update{ID: "update", StackID: "id-a", Status: "succeeded", StateBlob: "state", FinishedAt: instant(1)}
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(tx.WantVCSReport(report, nil), tx.InsertUpdate(update))
		})
		write(t, db, func(tx *store.Tx) error { // the others
			note, changed := "approval", integration
			changed.Credential, changed.ModifiedAt = []byte("new"), instant(9)
			return errors.Join(tx.WantVCSReport(report, &note), tx.SaveIntegration(changed), tx.ExpireState(update.ID))
		})
		write(t, db, func(tx *store.Tx) error {
			report.Sent, report.Wanted = 1, 1
			return errors.Join(tx.SaveVCSReport(report), tx.NoteIntegration(integration, instant(3), "refused"), tx.SetResourceChanges(update.ID, "{}"))
		})
		read(t, db, func(tx *store.Tx) error {
			r, err := tx.VCSReport(report.ID)
			if r.Wanted != 2 || r.Sent != 1 || r.Note != "approval" {
				t.Errorf("the report wants %d, has sent %d, and notes %q", r.Wanted, r.Sent, r.Note)
			}
			i, err2 := tx.Integration(integration.ID)
			if string(i.Credential) != "new" || i.Problem != integration.Problem || !i.RefusedAt.Equal(integration.RefusedAt) {
				t.Errorf("the integration has the credential %q, the problem %q", i.Credential, i.Problem)
			}
			u, err3 := tx.Update(update.ID)
			if u.StateBlob != "" || u.ResourceChanges != "{}" {
				t.Errorf("the update has the state %q, the changes %q", u.StateBlob, u.ResourceChanges)
			}
			return errors.Join(err, err2, err3)
		})
	})
}
