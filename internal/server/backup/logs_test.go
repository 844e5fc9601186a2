package backup_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/backup"
	"workflowagent/internal/server/store"
)

// TestGrowingLogs appends to the log of a running job, and begins others, while a backup is written. In the backup, each
// log ends at its length in the snapshot.
func TestGrowingLogs(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		must.Get(db.InstallationID(t.Context(), rand.Text()))(t)
		s.write(func(tx *store.Tx) error {
			for i := range 1000 { // so that the backup reports its progress before it reads the logs
				if err := tx.SetInstallation(fmt.Sprint("row", i), nil); err != nil {
					return err
				}
			}
			return nil
		})
		grow := func(key, text string) {
			offset := must.Get(db.Blobs().Size(t.Context(), key))(t)
			for _, piece := range []string{text[:1], text[1:]} {
				size, _, err := db.Blobs().Append(t.Context(), key, offset, []byte(piece))
				must.OK(t, err)
				offset = size
			}
		}
		const growing, step, claim = "logs/job-s1/1/0", "logs/job-s1/1/1", "logs/job-s1/2/0"
		write := func(during func()) (read func(key string) string) {
			t.Helper()
			result := must.Get(backup.Write(t.Context(), s.source(), backup.Request{Dir: s.backups}, func(backup.Progress) { during() }))(t)
			return func(key string) string {
				t.Helper()
				data, err := os.ReadFile(filepath.Join(result.Path, "blobs", filepath.FromSlash(key)))
				if err != nil {
					return "none"
				}
				return string(data)
			}
		}
		// Policy evaluations have logs, too. Their ids sort between those of jobs.
		s.write(func(tx *store.Tx) error {
			_, err := tx.Exec(`INSERT INTO policy_evaluations (id, org_id, stack_id, group_id, cause, status, queued_at, modified_at, claimed_at)
				SELECT i, 'org', 's1', i, 'update', 'succeeded', 1, 1, 1 FROM (SELECT 'evaluation' AS i UNION ALL SELECT 'zz-evaluation') n`)
			return err
		})
		grow("logs/evaluation/1/0", "evaluated\n")
		grow("logs/zz-evaluation/2/1", "evaluated again\n")
		before := content(t, db, "stacks", "logs")
		write(sync.OnceFunc(func() {
			grow(growing, "more\n")
			grow(step, "the next step\n")
			grow(claim, "the next agent\n")
		}))
		to := newTarget(t, "sqlite")
		must.Get(backup.Restore(t.Context(), s.backups, to.Target))(t)
		compare(t, content(t, to.open(), "stacks", "logs"), before)

		// The next backup contains what was cut off.
		read := write(sync.OnceFunc(func() { grow(growing, "the end\n") }))
		for key, want := range map[string]string{growing: "line\nmore\n", step: "the next step\n", claim: "the next agent\n"} {
			if got := read(key); got != want {
				t.Errorf("the second backup contains the log %q, want %q", got, want)
			}
		}
		must.Get(backup.Verify(t.Context(), s.backups, ""))(t)
	})
}
