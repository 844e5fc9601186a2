package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/backup"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// call sends a request with the administrator's token, and returns the body of the answer.
func call(t *testing.T, s *Server, dir, method, path, body string) string {
	t.Helper()
	token := must.Get(os.ReadFile(filepath.Join(dir, "admin-token")))(t)
	req := must.Get(http.NewRequestWithContext(t.Context(), method, s.URL()+path, strings.NewReader(body)))(t)
	req.Header.Set("Authorization", "token "+strings.TrimSpace(string(token)))
	res := must.Get(http.DefaultClient.Do(req))(t)
	defer res.Body.Close()
	answer := must.Get(io.ReadAll(res.Body))(t)
	if res.StatusCode >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, answer)
	}
	return string(answer)
}

// checkPaused checks that a restored server hands out no deployment, neither that of the backup nor a later one, and that
// after its release it hands out only the later one.
func checkPaused(t *testing.T, s *Server, dir string, cfg config.Config, pool, deployments, deployment string) {
	t.Helper()
	if got := call(t, s, dir, http.MethodGet, deployments, ""); !strings.Contains(got, `"status":"skipped"`) {
		t.Errorf("the deployment of the backup is %s", got)
	}
	var made struct{ ID string }
	must.OK(t, json.Unmarshal([]byte(call(t, s, dir, http.MethodPost, deployments, deployment)), &made))
	poll := func() int { return get(t, s.URL()+"/api/deployments/poll", pool) }
	if code := poll(); code != http.StatusNoContent {
		t.Errorf("before the release, a poll is answered with %d", code)
	}
	caller, closeCaller, err := Administer(t.Context(), cfg, "v1", "", storetest.Log())
	must.OK(t, err)
	defer func() { must.OK(t, closeCaller()) }()
	if r := must.Get(admin.ReleaseRestored.Do(t.Context(), caller, admin.ReleaseOf{}))(t); len(r.Released) != 1 || len(r.Remaining) > 0 {
		t.Errorf("released %+v", r)
	}
	if _, err := admin.ReleaseRestored.Do(t.Context(), caller, admin.ReleaseOf{}); err == nil || !strings.Contains(err.Error(), "nothing is to be released") {
		t.Errorf("a second release: %v", err)
	}
	if code := poll(); code != http.StatusOK {
		t.Errorf("after the release, a poll is answered with %d", code)
	}
	if code := poll(); code != http.StatusNoContent {
		t.Errorf("a second deployment was handed out with %d", code)
	}
	call(t, s, dir, http.MethodPost, deployments+"/"+made.ID+"/cancel", "") // in the next backup, it would hold the stack
}

// TestBackupOfRunningServer backs a server up, loses it, and restores it to the other engine and back. Tokens work, the
// state of a stack is the same, and secrets can be decrypted.
func TestBackupOfRunningServer(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "first")
	backups := admin.NewBackup{Dir: filepath.Join(base, "backups")} // not sealed: that takes long, and package backup tests it
	s := must.Get(New(t.Context(), testConfig(t, dir), "v1", storetest.Log(), io.Discard))(t)
	stop := run(t, s)
	call(t, s, dir, http.MethodPost, "/api/stacks/acme/proj", `{"stackName": "dev"}`)
	call(t, s, dir, http.MethodPost, "/api/stacks/acme/proj/dev/import", `{"version": 3, "deployment": {"manifest": {"time": "2026-01-01T00:00:00Z", "magic": "", "version": ""}, "resources": [{"urn": "urn:pulumi:dev::proj::pulumi:pulumi:Stack::proj-dev", "custom": false, "type": "pulumi:pulumi:Stack"}]}}`)
	secret := call(t, s, dir, http.MethodPost, "/api/stacks/acme/proj/dev/encrypt", `{"plaintext": "aHVudGVyMg=="}`)
	want := call(t, s, dir, http.MethodGet, "/api/stacks/acme/proj/dev/export", "")
	pool := struct{ TokenValue string }{}
	must.OK(t, json.Unmarshal([]byte(call(t, s, dir, http.MethodPost, "/api/orgs/acme/agent-pools", `{"name": "pool"}`)), &pool))
	const deployments = "/api/stacks/acme/proj/dev/deployments"
	const deployment = `{"operation": "update", "inheritSettings": false, "sourceContext": {"git": {"repoURL": "https://git.test/r.git", "branch": "main"}}}`
	call(t, s, dir, http.MethodPost, deployments, deployment)

	write := func(cfg config.Config) admin.Backup {
		t.Helper()
		caller, closeCaller, err := AdministerAlone(t.Context(), cfg, "v1", "", storetest.Log())
		must.OK(t, err)
		defer func() { must.OK(t, closeCaller()) }()
		return must.Get(admin.WriteBackup.Do(t.Context(), caller, backups))(t)
	}
	if b := write(testConfig(t, dir)); b.Blobs != 1 || b.Key || b.Engine != "sqlite" || len(b.Problems) > 0 {
		t.Errorf("the backup of the running server is %+v", b)
	}
	if _, err := Restore(t.Context(), testConfig(t, dir), "v1", RestoreRequest{Dir: backups.Dir}, storetest.Log()); err == nil || !strings.Contains(err.Error(), ") runs on "+dir) {
		t.Errorf("restoring over a running server: %v", err)
	}
	must.OK(t, os.Remove(filepath.Join(dir, "control.sock")))
	if _, err := Restore(t.Context(), testConfig(t, dir), "v1", RestoreRequest{Dir: backups.Dir}, storetest.Log()); err == nil || !strings.Contains(err.Error(), "another workflow-server is using the database") {
		t.Errorf("restoring over a running server without its socket: %v", err)
	}
	must.OK(t, stop())
	if _, err := Restore(t.Context(), testConfig(t, dir), "v1", RestoreRequest{Dir: backups.Dir}, storetest.Log()); err == nil || !strings.Contains(err.Error(), "server.db exists") {
		t.Errorf("restoring over an installation: %v", err)
	}
	write(testConfig(t, dir)) // without a server

	kept := map[string][]byte{} // as administrators keep them
	for _, name := range []string{"admin-token", "master-key"} {
		kept[name] = must.Get(os.ReadFile(filepath.Join(dir, name)))(t)
	}
	must.OK(t, os.RemoveAll(dir))
	for _, engine := range []string{"postgres", "sqlite"} {
		dir := filepath.Join(base, engine)
		cfg := testConfig(t, dir)
		if engine == "postgres" {
			cfg = must.Get(config.Load(config.LoadOptions{Cwd: base, Flags: map[string]string{"listen": "127.0.0.1:0", "data_dir": dir, "organization": "acme"}, Environ: []string{
				"WORKFLOW_SERVER_DATABASE=" + storetest.PostgresURL(t),
			}}))(t)
		}
		must.OK(t, os.Mkdir(dir, 0o700))
		must.OK(t, os.WriteFile(filepath.Join(dir, "master-key"), kept["master-key"], 0o600))
		restored := must.Get(Restore(t.Context(), cfg, "v1", RestoreRequest{Dir: backups.Dir}, storetest.Log()))(t)
		if !restored.Key {
			t.Error("the key is not known")
		}
		must.OK(t, os.WriteFile(filepath.Join(dir, "admin-token"), kept["admin-token"], 0o600))
		var notices bytes.Buffer
		s := must.Get(New(t.Context(), cfg, "v1", storetest.Log(), &notices))(t)
		if strings.Contains(notices.String(), "Created organization") {
			t.Errorf("the restored server has begun anew: %s", notices.String())
		}
		if status := must.Get(backup.ReadStatus(t.Context(), s.db))(t); status.Last != nil || !status.Begun.IsZero() {
			t.Errorf("%s: the restored server knows the backups of the lost one: %+v", engine, status)
		}
		stop := run(t, s)
		if got := call(t, s, dir, http.MethodGet, "/api/stacks/acme/proj/dev/export", ""); got != want {
			t.Errorf("%s: the state is %s, want %s", engine, got, want)
		}
		ciphertext := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(secret), `{"ciphertext":`), "}")
		if got := call(t, s, dir, http.MethodPost, "/api/stacks/acme/proj/dev/decrypt", `{"ciphertext": `+ciphertext+`}`); !strings.Contains(got, "aHVudGVyMg==") {
			t.Errorf("%s: the secret is %s", engine, got)
		}
		checkPaused(t, s, dir, cfg, pool.TokenValue, deployments, deployment)
		write(cfg)
		key := cfg.MasterKey().File
		must.OK(t, os.Rename(key, key+".away"))
		if err := DiscardSecrets(t.Context(), cfg, storetest.Log()); err == nil || !strings.Contains(err.Error(), "stop ") || !strings.Contains(err.Error(), " first") {
			t.Errorf("%s: discarding the secrets of a running server: %v", engine, err)
		}
		must.OK(t, os.Rename(key+".away", key))
		must.OK(t, stop())
		if err := DiscardSecrets(t.Context(), cfg, storetest.Log()); err == nil || !strings.Contains(err.Error(), "nothing was discarded") {
			t.Errorf("%s: discarding secrets with their key: %v", engine, err)
		}
		must.OK(t, os.Remove(cfg.MasterKey().File))
		if _, err := New(t.Context(), cfg, "v1", storetest.Log(), io.Discard); err == nil || !strings.Contains(err.Error(), "workflow-server secrets discard") {
			t.Errorf("%s: starting without the master key: %v", engine, err)
		}
		if _, err := os.Lstat(cfg.MasterKey().File); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the start without the master key has created one: %v", engine, err)
		}
		db := must.Get(OpenExistingDatabase(t.Context(), cfg, storetest.Log()))(t)
		must.OK(t, db.Write(t.Context(), scope.Free, func(tx *store.Tx) error { return tx.Beat(tx.Now().Add(-time.Hour), time.Second) })) // a minute has passed
		must.OK(t, db.Close())
		must.OK(t, DiscardSecrets(t.Context(), cfg, storetest.Log()))
		if engine == "postgres" { // a server creates no key for a shared database
			must.OK(t, os.WriteFile(cfg.MasterKey().File, []byte(strings.Repeat("A", 43)+"=\n"), 0o600))
		}
		s = must.Get(New(t.Context(), cfg, "v1", storetest.Log(), io.Discard))(t)
		stop = run(t, s)
		if got := call(t, s, dir, http.MethodGet, "/api/stacks/acme/proj/dev/export", ""); got != want {
			t.Errorf("%s: without the secrets, the state is %s, want %s", engine, got, want)
		}
		must.OK(t, stop())
	}
}

// TestStartAfterInterruptedRestore checks that a server does not begin a new installation after an interrupted restore.
func TestStartAfterInterruptedRestore(t *testing.T) {
	dir := t.TempDir()
	cfg := testConfig(t, dir)
	must.OK(t, os.WriteFile(filepath.Join(dir, "server.db.restoring"), nil, 0o600))
	if _, err := New(t.Context(), cfg, "v1", storetest.Log(), io.Discard); err == nil || !strings.Contains(err.Error(), "a restore to it was interrupted") {
		t.Errorf("starting: %v", err)
	}
	for _, name := range []string{"server.db", "master-key", "admin-token"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the refused start has created %s: %v", name, err)
		}
	}
}

// TestBackupsAreExclusive checks that one of the servers that share a database writes the backups of the schedule.
func TestBackupsAreExclusive(t *testing.T) {
	cfg := testConfig(t, filepath.Join(t.TempDir(), "data"))
	cfg.BackupSchedule = "0 3 * * *"
	s := must.Get(New(t.Context(), cfg, "v1", storetest.Log(), io.Discard))(t)
	defer s.closeAll()
	if !slices.ContainsFunc(s.subsystems, func(sub Subsystem) bool { return sub.Name == "backups" && sub.Exclusive }) {
		t.Error("each server writes backups, or none does")
	}
}

// TestHeldWork checks that the work of a restored server that acts outside of it, or removes old data, waits for the
// release, and that no other work does.
func TestHeldWork(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := must.Get(New(t.Context(), testConfig(t, dir), "v1", storetest.Log(), io.Discard))(t)
	defer s.closeAll()
	must.OK(t, s.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		mark, err := recovery.Mark(time.Now())
		if err != nil {
			return err
		}
		return tx.SetInstallation(recovery.Name, mark)
	}))
	for _, name := range held {
		if !slices.ContainsFunc(s.subsystems, func(sub Subsystem) bool { return sub.Name == name }) {
			t.Errorf("no work has the name %s", name)
		}
	}
	ran := map[string]bool{}
	for i, sub := range s.subsystems {
		s.subsystems[i].Run = func(context.Context) error { ran[sub.Name] = true; return nil }
	}
	s.hold(recovery.New(s.db, nil, storetest.Log()))
	ended, end := context.WithCancel(t.Context())
	end()
	if !slices.Contains(held, "retention") {
		t.Error("what has become old since the backup is removed before the release")
	}
	for _, sub := range s.subsystems {
		err := sub.Run(ended)
		if waits := slices.Contains(held, sub.Name); waits == ran[sub.Name] || waits == (err == nil) {
			t.Errorf("%s: ran %t, %v", sub.Name, ran[sub.Name], err)
		}
	}
}

// TestBackupBeforeUpdate starts a server on the database of an earlier version, without the newest table. It backs up
// the installation first, or does not start.
func TestBackupBeforeUpdate(t *testing.T) {
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			base := t.TempDir()
			dir := filepath.Join(base, "data")
			flags := map[string]string{"listen": "127.0.0.1:0", "data_dir": dir, "organization": "acme"}
			var environ []string
			if engine == "postgres" {
				environ = []string{"WORKFLOW_SERVER_DATABASE=" + storetest.PostgresURL(t)}
			}
			load := func() config.Config {
				return must.Get(config.Load(config.LoadOptions{Cwd: base, Flags: flags, Environ: environ}))(t)
			}
			start := func() error {
				s, err := New(t.Context(), load(), "v2", storetest.Log(), io.Discard)
				if err == nil {
					s.closeAll()
				}
				return err
			}
			backups := filepath.Join(dir, "backups")
			count := func() int { list, _ := backup.List(backups); return len(list) }
			must.OK(t, start())
			must.OK(t, start())
			if n := count(); n != 0 {
				t.Errorf("without an update, %d backups were written", n)
			}
			age := func() {
				db := must.Get(OpenDatabase(t.Context(), load(), storetest.Log()))(t)
				must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
					_, err := tx.Exec("DELETE FROM goose_db_version WHERE version_id = 590")
					if err == nil {
						_, err = tx.Exec("DROP TABLE oldest_programs")
					}
					return err
				}))
				must.OK(t, db.Close())
			}

			age()
			must.OK(t, start())
			list := must.Get(backup.List(backups))(t)
			if len(list) != 1 || list[0].Problem != nil || slices.Contains(list[0].Manifest.Schema, 590) {
				t.Fatalf("the backups before the update are %+v", list)
			}
			must.Get(backup.Verify(t.Context(), list[0].Path, ""))(t)

			age()
			must.OK(t, os.Chmod(backups, 0o755))
			err := start()
			if err == nil || !strings.Contains(err.Error(), "the schema was not updated") || !strings.Contains(err.Error(), "backup_before_upgrade") || fault.KindOf(err) != fault.KindInvalid {
				t.Errorf("without a backup: %v", err)
			}
			if _, err := OpenExistingDatabase(t.Context(), load(), storetest.Log()); err == nil || !strings.Contains(err.Error(), "lacks version 590") {
				t.Errorf("the schema was updated without a backup: %v", err)
			}
			flags["backup_before_upgrade"] = "false"
			must.OK(t, start())
			if n := count(); n != 1 {
				t.Errorf("with the setting off, %d backups exist", n)
			}
		})
	}
}
