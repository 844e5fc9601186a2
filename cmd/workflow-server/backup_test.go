package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// script runs the commands of a page as root.
func (h *host) script(mark string, values map[string]string) string {
	h.t.Helper()
	cmd := exec.CommandContext(h.t.Context(), "bash", "-c", harness.Script(h.t, "backup.md", mark, values))
	cmd.Dir = h.base
	cmd.Env = append([]string{programEnv + "=1", "HOME=" + h.base, "PATH=" + h.base + ":" + os.Getenv("PATH")}, h.env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.t.Fatalf("%s: %v\n%s", mark, err, out)
	}
	return string(out)
}

// nameAccount makes the commands chown, chgrp and install of pages use a user's id in place of the service's account.
func (h *host) nameAccount(user int) {
	h.t.Helper()
	for _, name := range []string{"chown", "chgrp", "install"} {
		path := must.Get(exec.LookPath(name))(h.t)
		text := fmt.Sprintf("#!/bin/bash\nset -- \"${@/#workflow-server:workflow-server/%[1]d:%[1]d}\"\nexec %[2]s \"${@/#workflow-server/%[1]d}\"\n", user, path)
		must.OK(h.t, os.WriteFile(filepath.Join(h.base, name), []byte(text), 0o755))
	}
}

// testReturn puts back the backups and the configuration from a copy whose files belong to another account.
func (h *host) testReturn(user int, values map[string]string) {
	h.t.Helper()
	etc, restored := filepath.Join(h.base, "etc/workflow-server"), filepath.Join(h.base, "returned")
	must.OK(h.t, os.MkdirAll(etc, 0o755))
	must.OK(h.t, os.WriteFile(filepath.Join(etc, "workflow-server.yaml"), []byte("backup_keep: 14\n"), 0o640))
	must.OK(h.t, os.Chmod(values["BACKUPS"], 0o755))
	must.OK(h.t, exec.CommandContext(h.t.Context(), "chown", "-R", "1234:1234", values["BACKUPS"]).Run())
	h.script("backup return", map[string]string{"COPY": h.base, "ETC": restored, "PASSPHRASE_COPY": values["PASSPHRASE_FILE"]})
	values["PASSPHRASE_FILE"] = filepath.Join(restored, "backup-passphrase")
	if shown := h.ok(user, "config", "show", "--config", filepath.Join(restored, "workflow-server.yaml")); !strings.Contains(shown, "14") {
		h.t.Errorf("the restored settings are\n%s", shown)
	}
	if info := must.Get(os.Stat(values["PASSPHRASE_FILE"]))(h.t); info.Mode().Perm() != 0o600 {
		h.t.Errorf("the restored passphrase has the mode %s", info.Mode())
	}
}

// testNightly lets the server write sealed backups by a schedule. The account of the service is another user here.
func (h *host) testNightly(user int) {
	h.t.Helper()
	env, file := h.env, filepath.Join(h.base, "nightly.yaml")
	defer func() { h.env = env }()
	h.env = append(h.env, "WORKFLOW_SERVER_CONFIG="+file)
	must.OK(h.t, os.WriteFile(file, nil, 0o644))
	out := h.script("backup nightly", map[string]string{"CONFIG": file, "PASSPHRASE_FILE": filepath.Join(h.base, "nightly-passphrase")})
	if !strings.Contains(out, "The configuration is valid") {
		h.t.Errorf("got %s", out)
	}
	if shown := h.ok(user, "config", "show"); !strings.Contains(shown, "0 3 * * *") || !strings.Contains(shown, "nightly-passphrase") {
		h.t.Errorf("the settings are\n%s", shown)
	}
}

// TestBackupDrill follows docs/backup.md: it backs up a running server, loses its data directory, and restores it. Root
// runs the commands, and the server another user.
func TestBackupDrill(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	const user = 1001
	h := newHost(t)
	data := h.dir("data", user)
	values := map[string]string{"BACKUPS": h.dir("backups", user), "PASSPHRASE_FILE": filepath.Join(h.base, "passphrase")}
	must.OK(t, os.WriteFile(filepath.Join(h.base, "systemctl"), []byte("#!/bin/sh\n"), 0o755))
	h.env = []string{"WORKFLOW_SERVER_DATA_DIR=" + data}
	stop := h.serve(user)
	h.ok(0, "pool", "create", "production")
	if got := strings.TrimSpace(h.ok(0, "backup", "list", "--json")); !strings.HasPrefix(got, "[]") {
		t.Errorf("before the first backup, the list is %s", got)
	}
	if out := h.script("backup write", values); !strings.Contains(out, "It does not contain the master key") {
		t.Errorf("got %s", out)
	}
	if out := h.ok(0, "backup", "verify", values["BACKUPS"]); !strings.Contains(out, "It does not contain the master key") {
		t.Errorf("got %s", out)
	}
	if out := h.script("backup key", values); !strings.Contains(out, "sealed with the passphrase") {
		t.Errorf("got %s", out)
	}
	if out := h.ok(0, "backup", "verify", values["BACKUPS"]); !strings.Contains(out, "It contains the master key, sealed with a passphrase") {
		t.Errorf("got %s", out)
	}
	env := h.env
	h.env = append(h.env, "WORKFLOW_SERVER_BACKUP_PASSPHRASE_FILE="+values["PASSPHRASE_FILE"])
	if out := h.ok(0, "backup", values["BACKUPS"]); !strings.Contains(out, "sealed with the passphrase") {
		t.Errorf("with the passphrase of the configuration: %s", out)
	}
	h.env = env
	h.nameAccount(user)
	h.testNightly(user)
	pools := h.ok(0, "pool", "list", "--json")
	stop(syscall.SIGTERM)
	must.OK(t, os.RemoveAll(data))
	h.dir("data", user) // as an installed package has it
	stop = h.serve(user)
	stop(syscall.SIGTERM)
	h.script("backup away", map[string]string{"DATA": data, "ASIDE": filepath.Join(h.base, "aside")})
	if left := must.Get(os.ReadDir(data))(t); len(left) > 0 {
		t.Errorf("the new installation has left %v", left)
	}
	h.testReturn(user, values)
	if out := h.script("backup verify", values); !strings.Contains(out, "The passphrase opens its master key") {
		t.Errorf("got %s", out)
	}
	h.refuses(0, 1, "not a directory", "restore", values["PASSPHRASE_FILE"])
	h.refuses(0, 2, "--key-passphrase-file, or restore it without the key with --without-key", "restore", values["BACKUPS"])
	if out := h.script("backup restore", values); !strings.Contains(out, "Restored "+values["BACKUPS"]) {
		t.Errorf("got %s", out)
	}
	h.serve(user)
	if got := h.ok(0, "pool", "list", "--json"); got != pools {
		t.Errorf("the pools are %s, want %s", got, pools)
	}
	if out := h.script("backup status", values); !strings.Contains(out, "Paused until their release: organization.") || !strings.Contains(out, "LAST USED") {
		t.Errorf("got %s", out)
	}
	var tokens []struct{ ID string }
	must.OK(t, json.Unmarshal([]byte(h.ok(0, "token", "list", "--json")), &tokens))
	log := filepath.Join(h.base, "audit.jsonl")
	entry := fmt.Sprintf(`{"time": "2026-11-29T14:10:00Z", "action": "token.revoked", "subjectId": %q}`+"\n", tokens[0].ID)
	must.OK(t, os.WriteFile(log, []byte(entry), 0o644))
	var status struct {
		Paused []string
		Tokens []struct {
			ID                 string
			RevokedSinceBackup bool
		}
	}
	must.OK(t, json.Unmarshal([]byte(h.ok(0, "restore", "status", "--audit-log", log, "--json")), &status))
	if len(status.Paused) != 1 || len(status.Tokens) != len(tokens) || status.Tokens[0].ID != tokens[0].ID || !status.Tokens[0].RevokedSinceBackup {
		t.Errorf("the status is %+v", status)
	}
	must.OK(t, os.WriteFile(log, []byte("time,actor\n"), 0o644))
	h.refuses(0, 2, "line 1 of "+log+" is no entry of an audit log", "restore", "status", "--audit-log", log)
	h.refuses(0, 2, "with --kind, or all with --all", "restore", "revoke-tokens")
	h.refuses(0, 2, `"job" is not a kind of tokens`, "restore", "revoke-tokens", "--kind", "job")
	if out := h.ok(0, "restore", "revoke-tokens", "--kind", "pool,exchanged", "--json"); strings.Join(strings.Fields(out), "") != `{"pool":1}` {
		t.Errorf("got %s", out)
	}
	if out := h.script("backup revoke", values); !strings.Contains(out, fmt.Sprintf("Revoked %d tokens of users", len(tokens)-1)) {
		t.Errorf("got %s", out)
	}
	if out := h.script("backup status", values); !strings.Contains(out, "No token of the backup is valid.") {
		t.Errorf("got %s", out)
	}
	if out := h.script("backup release", values); !strings.Contains(out, "The restored server works again") {
		t.Errorf("got %s", out)
	}
	h.refuses(0, 1, "nothing is to be released", "restore", "release", "--all")
	h.refuses(0, 2, "name one organization, or all with --all", "restore", "release")
}
