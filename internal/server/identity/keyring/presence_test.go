package keyring_test

import (
	"bytes"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestRetireMasterBesideServers refuses to retire a master key with which servers run.
func TestRetireMasterBesideServers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		one, two := open(t, db, 1), open(t, db, 1)
		must.OK(t, one.Present(ctx, "a", "alpha process 1"))
		must.OK(t, two.Present(ctx, "b", "beta process 2"))
		must.OK(t, one.AddMaster(ctx, bytes.Repeat([]byte{2}, 32)))
		refused := func(want, not string) {
			t.Helper()
			err := open(t, db, 2).RetireMaster(ctx)
			if fault.KindOf(err) != fault.KindConflict || !strings.Contains(err.Error(), want) || not != "" && strings.Contains(err.Error(), not) {
				t.Errorf("retiring the key: %v, want %q without %q", err, want, not)
			}
		}
		refused("alpha process 1, beta process 2.", "")
		// Alpha restarts with the new key. It is another process.
		must.OK(t, one.Absent(ctx, "a"))
		one = open(t, db, 2)
		must.OK(t, one.Present(ctx, "c", "alpha process 3"))
		refused("beta process 2", "alpha")
		// Beta was killed.
		must.OK(t, db.Write(ctx, scope.Free, func(tx *store.Tx) error {
			values, err := tx.InstallationsWith("running-server-b")
			for name, value := range values {
				year := []byte(tx.Now().UTC().Format("2006-"))
				must.OK(t, tx.SetInstallation(name, bytes.Replace(value, year, []byte("2001-"), 1)))
			}
			return err
		}))
		must.OK(t, one.Present(ctx, "c", "alpha process 3"))
		left := must.Get(store.Read(ctx, db, func(tx *store.Tx) (map[string][]byte, error) { return tx.InstallationsWith("running-server-") }))(t)
		if len(left) != 1 {
			t.Errorf("records of servers: %q, want one", left)
		}
		must.OK(t, open(t, db, 2).RetireMaster(ctx))
	})
}
