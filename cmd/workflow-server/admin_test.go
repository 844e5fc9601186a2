package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// programEnv makes the test binary the program.
const programEnv = "TEST_WORKFLOW_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		os.Exit(run())
	}
	os.Exit(storetest.Main(m))
}

// host is a machine with the program, on which several users run processes.
type host struct {
	t             *testing.T
	base, program string
	env           []string // of all processes
	url           string   // of the server that started last
}

func newHost(t *testing.T) *host {
	t.Helper()
	base := must.Get(filepath.EvalSymlinks(must.Get(os.MkdirTemp("", "host-"))(t)))(t)
	t.Cleanup(func() { os.RemoveAll(base) })
	must.OK(t, os.Chmod(base, 0o755))
	h := &host{t: t, base: base, program: filepath.Join(base, "workflow-server")}
	must.OK(t, os.WriteFile(h.program, must.Get(os.ReadFile(must.Get(os.Executable())(t)))(t), 0o755))
	return h
}

// dir creates a directory of a user.
func (h *host) dir(name string, uid int) string {
	h.t.Helper()
	dir := filepath.Join(h.base, name)
	must.OK(h.t, os.MkdirAll(dir, 0o700))
	must.OK(h.t, os.Chown(dir, uid, uid))
	return dir
}

func (h *host) command(uid int, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(h.t.Context(), h.program, args...)
	cmd.Dir = h.base
	cmd.Env = append([]string{programEnv + "=1", "HOME=" + h.base, "TMPDIR=/tmp"}, h.env...)
	if uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	return cmd
}

// says runs the program as a user, and returns what it prints.
func (h *host) says(uid int, args ...string) (out, problem string, code int) {
	h.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := h.command(uid, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return stdout.String(), stderr.String(), exit.ExitCode()
	}
	must.OK(h.t, err)
	return stdout.String(), stderr.String(), 0
}

// ok runs the program as a user, and returns what it prints without the line's end.
func (h *host) ok(uid int, args ...string) string {
	h.t.Helper()
	out, problem, code := h.says(uid, args...)
	if code != 0 || problem != "" {
		h.t.Fatalf("%v: exit code %d, %s", args, code, problem)
	}
	return strings.TrimSuffix(out, "\n")
}

// refuses runs the program as a user, which must fail.
func (h *host) refuses(uid, code int, want string, args ...string) {
	h.t.Helper()
	if out, problem, got := h.says(uid, args...); got != code || !strings.Contains(problem, want) {
		h.t.Errorf("%v as user %d: exit code %d, %s%s; want %d and %q", args, uid, got, out, problem, code, want)
	}
}

// serve runs a server as a user until stop is called, or the test ends.
func (h *host) serve(uid int, args ...string) (stop func(syscall.Signal)) {
	h.t.Helper()
	return h.serveTo(io.Discard, uid, args...)
}

// serveTo is like serve, and writes what the server logs after its start.
func (h *host) serveTo(w io.Writer, uid int, args ...string) (stop func(syscall.Signal)) {
	h.t.Helper()
	cmd := h.command(uid, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	log := must.Get(cmd.StderrPipe())(h.t)
	must.OK(h.t, cmd.Start())
	lines := bufio.NewScanner(log)
	for serving := false; !serving; {
		if !lines.Scan() {
			_ = cmd.Wait()
			h.t.Fatal("the server ended")
		}
		if serving = strings.Contains(lines.Text(), "msg=serving"); serving {
			_, address, _ := strings.Cut(lines.Text(), "listen=\"")
			address, _, _ = strings.Cut(address, "\"")
			h.url = "http://" + address
		}
		if strings.Contains(lines.Text(), "do not reach this server") {
			h.t.Error(lines.Text())
		}
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for lines.Scan() {
			fmt.Fprintln(w, lines.Text())
		}
		_, _ = io.Copy(io.Discard, log) // after a line that is too long
	}()
	ended := false
	stop = func(signal syscall.Signal) {
		if ended {
			return
		}
		ended = true
		_ = cmd.Process.Signal(signal)
		<-drained
		_ = cmd.Wait()
	}
	h.t.Cleanup(func() { stop(syscall.SIGTERM) })
	return stop
}

// self is the user of the test.
var self = os.Getuid()

// TestAdministration runs the commands on a running server, and again on its database after it has stopped. Both ways
// must do the same.
func TestAdministration(t *testing.T) {
	for name, database := range map[string]func(t *testing.T) []string{
		"sqlite":   func(*testing.T) []string { return nil },
		"postgres": func(t *testing.T) []string { return []string{"WORKFLOW_SERVER_DATABASE=" + storetest.PostgresDSN(t)} },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "sqlite" {
				storetest.OnSQLite(t)
			}
			h := newHost(t)
			h.env = database(t)
			settings := []string{"--data-dir", h.dir("data", self)}
			stop := h.serve(self, settings...)
			with := func(args ...string) []string { return append(args, settings...) }
			t.Run("running", func(t *testing.T) { administration(t, h, with, "one") })
			stop(syscall.SIGTERM)
			t.Run("stopped", func(t *testing.T) { administration(t, h, with, "two") })
			h.serve(self, settings...)
			if got := h.ok(self, with("user", "list")...); !strings.Contains(got, "ann-one") || !strings.Contains(got, "ann-two") {
				t.Errorf("the running server has the users\n%s", got)
			}
		})
	}
}

// administration uses every command, with names that contain a suffix.
func administration(t *testing.T, h *host, with func(...string) []string, suffix string) {
	h = &host{t: t, base: h.base, program: h.program, env: h.env}
	ok := func(args ...string) string { t.Helper(); return h.ok(self, with(args...)...) }
	refuses := func(code int, want string, args ...string) { t.Helper(); h.refuses(self, code, want, with(args...)...) }
	says := func(want string, args ...string) {
		t.Helper()
		if got := ok(args...); !strings.Contains(got, want) {
			t.Errorf("%v: got\n%s\nwant %q", args, got, want)
		}
	}
	parse := func(out any, args ...string) {
		t.Helper()
		must.OK(t, json.Unmarshal([]byte(ok(append(args, "--json")...)), out))
	}
	ann, org := "ann-"+suffix, "org-"+suffix

	// Users.
	var user struct{ Login, ID, Token string }
	parse(&user, "user", "create", ann, "--name", "Ann", "--email", "ann@example.com", "--member-of", "organization")
	if user.Login != ann || user.ID == "" || !strings.HasPrefix(user.Token, "pul-") {
		t.Errorf("created %+v", user)
	}
	refuses(program.ExitFailed, "already exists", "user", "create", ann)
	refuses(program.ExitUsage, "not valid", "user", "create", "a b")
	says(ann, "user", "list")
	var users []struct {
		Login, Name, Email string
		Roles              map[string]string
	}
	parse(&users, "user", "list")
	if i := len(users) - 1; users[0].Login != "admin" || users[i].Login != ann || users[i].Roles["organization"] != "member" || users[i].Email != "ann@example.com" {
		t.Errorf("the users are %+v", users)
	}
	says("SIGNED IN", "user", "sessions", ann)
	parse(&[]struct{}{}, "user", "sessions", ann)
	says("Ended 0 sessions of "+ann+".", "user", "sessions", ann, "--end")
	refuses(program.ExitUsage, "use one of them", "user", "sessions", ann, "--end", "--json")
	refuses(program.ExitNone, `"nobody" does not exist`, "user", "sessions", "nobody")
	says("/-/login/link?key=pul-", "admin", "sign-in", ann, "--external-url", "https://deployments.example.com")
	refuses(program.ExitNone, `"nobody" does not exist`, "admin", "sign-in", "nobody")

	// Tokens.
	if text := ok("token", "create", "--user", ann, "--description", "\x1b[31mred\n", "--expires", "1h"); !strings.HasPrefix(text, "pul-") || strings.Contains(text, "\n") {
		t.Errorf("created the token %q", text)
	}
	var tokens []struct{ ID, Kind, User, Description, Expires, CreatedBy string }
	parse(&tokens, "token", "list", "--user", ann)
	if len(tokens) != 2 || tokens[0].Kind != "personal" || tokens[0].User != ann || tokens[0].Expires == "" {
		t.Fatalf("the tokens are %+v", tokens)
	}
	if got := ok("token", "list"); !strings.Contains(got, "red") || strings.Contains(got, "\x1b") {
		t.Errorf("the list of tokens is %q", got)
	}
	says("Revoked the token "+tokens[0].ID, "token", "revoke", tokens[0].ID)
	refuses(program.ExitNone, "token list", "token", "revoke", tokens[0].ID)
	refuses(program.ExitUsage, "kind of token", "token", "list", "--kind", "x")

	// Organizations, pools, stacks.
	var created struct{ Name, ID string }
	parse(&created, "org", "create", org, "--admin", ann)
	refuses(program.ExitFailed, "already exists", "org", "create", org, "--admin", ann)
	refuses(program.ExitUsage, "several organizations", "pool", "create", "p")
	var pool struct{ Organization, Name, ID, Token string }
	parse(&pool, "pool", "create", "production", "--org", org)
	if pool.Organization != org || pool.ID == "" || !strings.HasPrefix(pool.Token, "pul-") {
		t.Errorf("created %+v", pool)
	}
	refuses(program.ExitFailed, "with: workflow-server pool token production --org "+org, "pool", "create", "production", "--org", org)
	if text := ok("pool", "create", "second", "--org", org); !strings.HasPrefix(text, "pul-") {
		t.Errorf("created a pool with the token %q", text)
	}
	if text := ok("pool", "token", "production", "--org", org, "--expires", "1h"); !strings.HasPrefix(text, "pul-") || text == pool.Token {
		t.Errorf("created the token %q", text)
	}
	file := filepath.Join(t.TempDir(), "token")
	refuses(program.ExitFailed, "no such file", "pool", "create", "third", "--org", org, "--token-file", filepath.Join(file, "token"))
	refuses(program.ExitUsage, "use one of them", "pool", "create", "third", "--org", org, "--token-file", file, "--json")
	if text := ok("pool", "token", "second", "--org", org, "--token-file", file); text != "" {
		t.Errorf("printed %q in addition to the file", text)
	}
	written := must.Get(os.ReadFile(file))(t)
	if info := must.Get(os.Stat(file))(t); info.Mode() != 0o600 || !strings.HasPrefix(string(written), "pul-") {
		t.Errorf("%s has the mode %s and contains %q", file, info.Mode(), written)
	}
	says("exists, so nothing was created", "pool", "create", "third", "--org", org, "--token-file", file)
	if again := must.Get(os.ReadFile(file))(t); string(again) != string(written) {
		t.Errorf("the file changed from %q to %q", written, again)
	}
	ok("pool", "token", "second", "--org", org, "--token-file", file)
	if again := must.Get(os.ReadFile(file))(t); string(again) == string(written) || !strings.HasPrefix(string(again), "pul-") {
		t.Errorf("the file still contains %q", again)
	}
	refuses(program.ExitUsage, "--expires must not be negative", "pool", "token", "production", "--expires", "-1h")
	var pools []struct {
		Name    string
		Default bool
	}
	parse(&pools, "pool", "list", "--org", org)
	if len(pools) != 2 || pools[0].Name != "production" || !pools[0].Default {
		t.Errorf("the pools are %+v", pools)
	}
	says("production", "pool", "list")
	says(`Deleted the pool "second" of `+org+".", "pool", "delete", "second", "--org", org)
	refuses(program.ExitNone, `no agent pool "second"`, "pool", "delete", "second", "--org", org)
	refuses(program.ExitUsage, "identity tokens", "org", "rename", org, "new-"+org)
	says(`Renamed organization "`+org+`" to "new-`+org+`"`, "org", "rename", org, "new-"+org, "--yes")
	says("production", "pool", "list", "--org", org) // the former name
	says("new-"+org, "org", "list")
	parse(&[]struct{ FormerNames []string }{}, "org", "list")
	says("STACK", "stack", "list")
	says("REMOVED AFTER", "stack", "deleted")
	parse(&[]struct{}{}, "stack", "deleted", "--org", org)
	refuses(program.ExitNone, "no deleted stack has the name", "stack", "restore", "organization/p/s", "--as", "t")
	refuses(program.ExitNone, "no deleted stack has the id", "stack", "purge", "none")
	parse(&[]struct{}{}, "stack", "list", "--org", org)
	refuses(program.ExitNone, "does not exist", "stack", "transfer", "organization/p/s", org)

	// Limits, administrators and the end of organizations.
	says(org+" stores 0 B and may store any amount (the server's setting). It may run 150 deployments at the same time (the server's setting).", "org", "quota", "new-"+org)
	says("may store 2.0 GiB. It may run 7 deployments at the same time.", "org", "quota", org, "--storage", "2g", "--deployments", "7")
	var limited struct{ StorageQuota, StorageLimit, DeploymentLimit int64 }
	parse(&limited, "org", "quota", org, "--storage", "none", "--deployments", "default")
	if limited.StorageQuota != -1 || limited.StorageLimit != 0 || limited.DeploymentLimit != 150 {
		t.Errorf("the limits are %+v", limited)
	}
	refuses(program.ExitUsage, "such as 50g", "org", "quota", org, "--storage", "much")
	refuses(program.ExitUsage, "a number from 1", "org", "quota", org, "--deployments", "0")
	refuses(program.ExitNone, "does not exist", "org", "quota", "none-"+org, "--deployments", "3")
	ok("org", "create", "doomed-"+org, "--admin", ann)
	says("admin administers", "org", "appoint", "doomed-"+org, "admin")
	refuses(program.ExitNone, "does not exist", "org", "appoint", "doomed-"+org, "none")
	refuses(program.ExitUsage, "--confirm doomed-"+org, "org", "delete", "doomed-"+org)
	refuses(program.ExitUsage, "name it once more", "org", "delete", "doomed-"+org, "--confirm", "doomed")
	says(`Deleted the organization "doomed-`+org+`" with 0 stacks`, "org", "delete", "doomed-"+org, "--confirm", "doomed-"+org)
	refuses(program.ExitNone, "does not exist", "org", "delete", "doomed-"+org)
	refuses(program.ExitFailed, "--reuse-name", "org", "create", "doomed-"+org, "--admin", ann)
	ok("org", "create", "doomed-"+org, "--admin", ann, "--reuse-name")
	parse(&created, "org", "delete", "doomed-"+org, "--confirm", "doomed-"+org)

	// The end of users.
	says(ann+" is the last administrator of new-"+org+".", "user", "owned", ann)
	refuses(program.ExitFailed, "name the user who takes over", "user", "disable", ann)
	ok("org", "appoint", "new-"+org, "admin")
	says("Disabled "+ann+", and ended 0 sessions and 1 access token.", "user", "disable", ann, "--to", "admin")
	says("disabled", "user", "list")
	var holdings struct{ LastAdministratorOf, Owned []any }
	parse(&holdings, "user", "owned", ann)
	says(ann+" owned nothing.", "user", "hand-over", ann, "admin")
	refuses(program.ExitNone, `"none" does not exist`, "user", "hand-over", ann, "none")
	refuses(program.ExitUsage, "takes over", "user", "hand-over", ann)
	refuses(program.ExitFailed, "is disabled", "token", "create", "--user", ann)
	says("Enabled "+ann+".", "user", "enable", ann)
	refuses(program.ExitFailed, "last administrator of the server", "user", "delete", "admin")
	ok("user", "create", "old-"+suffix)
	says("Deleted old-"+suffix+", whom histories call old-"+suffix+"-deleted-", "user", "delete", "old-"+suffix, "--to", "admin")
}

// TestAuditOfCommands checks what the audit log contains about a command, in both ways.
func TestAuditOfCommands(t *testing.T) {
	storetest.OnSQLite(t)
	h := newHost(t)
	data := h.dir("data", self)
	stop := h.serve(self, "--data-dir", data)
	h.env = []string{"SUDO_USER=eve"}
	h.ok(self, "user", "create", "ann", "--data-dir", data)
	stop(syscall.SIGTERM)
	h.ok(self, "user", "create", "bob", "--data-dir", data)
	db := must.Get(store.Open(t.Context(), "sqlite:"+filepath.Join(data, "server.db"), store.Options{Log: storetest.Log(), BlobDir: filepath.Join(data, "blobs")}))(t)
	defer db.Close()
	list := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) ([]store.AuditEntry, error) {
		return tx.AuditEntries(store.AuditFilter{Action: "user.created", Limit: 10})
	}))(t)
	if len(list) != 2 {
		t.Fatalf("the audit log contains %+v", list)
	}
	for _, e := range list {
		if e.Way != "command" || e.ActorKind != "operator" || !strings.HasSuffix(e.Actor, " (eve)") {
			t.Errorf("%s was created by %s %s on the way %s", e.Subject, e.ActorKind, e.Actor, e.Way)
		}
	}
}

// TestServersThatCannotBeUsed tries servers with which a command must not work.
func TestServersThatCannotBeUsed(t *testing.T) {
	storetest.OnSQLite(t)
	h := newHost(t)
	data := h.dir("data", self)
	list := []string{"user", "list", "--data-dir", data}
	h.refuses(self, program.ExitNone, "does not exist", list...)
	stop := h.serve(self, "--data-dir", data)
	h.ok(self, list...)
	h.refuses(self, program.ExitFailed, "its database is that in its data directory, and not sqlite:/x", append(list, "--database", "sqlite:/x")...)
	// A killed server leaves its socket.
	stop(syscall.SIGKILL)
	if _, err := os.Lstat(filepath.Join(data, "control.sock")); err != nil {
		t.Error(err)
	}
	h.ok(self, list...)
	// The socket of a running server has been removed.
	h.serve(self, "--data-dir", data)
	must.OK(t, os.Remove(filepath.Join(data, "control.sock")))
	h.refuses(self, program.ExitFailed, "answers no commands", list...)
}

// TestOtherSchema checks that no command changes the schema of a database, and that commands use only one
// that suits the program.
func TestOtherSchema(t *testing.T) {
	storetest.OnSQLite(t)
	h := newHost(t)
	data := h.dir("data", self)
	h.serve(self, "--data-dir", data)(syscall.SIGTERM)
	db := must.Get(store.Open(t.Context(), "sqlite:"+filepath.Join(data, "server.db"), store.Options{Log: storetest.Log(), BlobDir: filepath.Join(data, "blobs")}))(t)
	change := func(statement string) {
		t.Helper()
		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			_, err := tx.Exec(statement)
			return err
		}))
	}
	change("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, 1)")
	h.ok(self, "user", "list", "--data-dir", data)
	change("INSERT INTO oldest_programs (migration, release) VALUES (99999, 'v9.9.9')")
	h.refuses(self, exitOld, "only v9.9.9 and later may use it", "user", "list", "--data-dir", data)
	change("DELETE FROM oldest_programs WHERE migration = 99999")
	change("DELETE FROM goose_db_version WHERE version_id = 99999")
	change("DELETE FROM goose_db_version WHERE version_id = 560")
	h.refuses(self, program.ExitFailed, "the database belongs to an older workflow-server", "user", "list", "--data-dir", data)
	must.OK(t, db.Close())
}

const (
	serverUser = 1001
	mallory    = 1002
)

// TestPackagedServer administers a server that is set up like a package's: it has its own user and a runtime
// directory, and root owns its configuration file.
func TestPackagedServer(t *testing.T) {
	storetest.OnSQLite(t)
	if self != 0 {
		t.Skip("only root can become another user")
	}
	h := newHost(t)
	data, runtime := h.dir("data", serverUser), h.dir("run", serverUser)
	must.OK(t, os.Chmod(runtime, 0o755))
	file := filepath.Join(h.base, "workflow-server.yaml") // in the current directory, as /etc/workflow-server needs root
	must.OK(t, os.WriteFile(file, []byte("data_dir: "+data+"\n"), 0o644))
	h.env = []string{"RUNTIME_DIRECTORY=" + runtime}
	stop := h.serve(serverUser)
	for name, uid := range map[string]int{"root": 0, "server": serverUser} {
		if text := h.ok(uid, "pool", "create", name); !strings.HasPrefix(text, "pul-") {
			t.Errorf("%s created %q", name, text)
		}
	}
	h.refuses(mallory, program.ExitFailed, "only root and the server's own user have access", "pool", "list")
	if _, err := os.Lstat(filepath.Join(runtime, "control.sock")); err != nil {
		t.Error(err)
	}

	// After the server has stopped, root's command leaves nothing that the server could not read.
	stop(syscall.SIGTERM)
	h.ok(0, "user", "create", "ann", "--member-of", "organization")
	must.OK(t, filepath.WalkDir(data, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if stat, ok := must.Get(entry.Info())(t).Sys().(*syscall.Stat_t); !ok || stat.Uid != serverUser {
			t.Errorf("%s belongs to user %d", path, stat.Uid)
		}
		return nil
	}))
	h.refuses(mallory, program.ExitFailed, "only root and the server's own user have access", "pool", "list")
	h.serve(serverUser)
	h.ok(0, "user", "disable", "ann")
}

// TestHostileDirectories lets the server's user, and another one, prepare what a command of root finds.
func TestHostileDirectories(t *testing.T) {
	storetest.OnSQLite(t)
	if self != 0 {
		t.Skip("only root can become another user")
	}
	h := newHost(t)
	data := h.dir("data", serverUser)
	h.serve(serverUser, "--data-dir", data)(syscall.SIGTERM)
	list := []string{"user", "list", "--data-dir", data}

	// The server's user leads the database's log to a file of root.
	secret := filepath.Join(h.base, "secret")
	must.OK(t, os.WriteFile(secret, []byte("secret"), 0o600))
	wal := filepath.Join(data, "server.db-wal")
	if err := os.Rename(wal, wal+".kept"); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	must.OK(t, os.Symlink(secret, wal))
	_, _, code := h.says(0, append([]string{"user", "create", "eve"}, list[2:]...)...)
	if text := must.Get(os.ReadFile(secret))(t); string(text) != "secret" || code == 0 {
		t.Errorf("the command ended with %d, and the file of root contains %q", code, text)
	}
	must.OK(t, os.Remove(wal))
	if err := os.Rename(wal+".kept", wal); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	h.ok(0, list...)

	// Mallory owns a directory above, or can write to the data directory.
	home := h.dir("home", mallory)
	must.OK(t, os.Chmod(home, 0o755))
	below := filepath.Join(home, "data")
	must.OK(t, os.Rename(data, below))
	h.refuses(0, program.ExitFailed, "home belongs to user 1002", "user", "list", "--data-dir", below)
	must.OK(t, os.Rename(below, data))
	must.OK(t, os.Chmod(data, 0o777))
	h.refuses(0, program.ExitFailed, "can write to", list...)
	must.OK(t, os.Chmod(data, 0o700))

	// Root stands in a directory of mallory, with a server's directory in it, and names none.
	trap := &host{t: t, base: home, program: h.program}
	h.dir("home/workflow-server-data", mallory)
	trap.serve(mallory)(syscall.SIGTERM)
	trap.refuses(0, program.ExitFailed, "belongs to user 1002", "user", "list")
	trap.refuses(0, program.ExitFailed, "belongs to user 1002", "secrets", "rotate")
	trap.refuses(0, program.ExitFailed, "belongs to user 1002", "oidc", "keys")
	unused := filepath.Join(h.base, "unused-key")
	trap.refuses(0, program.ExitFailed, "belongs to user 1002", "secrets", "replace-master-key", "--new-file", unused)
	if _, err := os.Lstat(unused); err == nil {
		t.Error("a refused command has created a key")
	}
	trap.serve(mallory)
	trap.refuses(0, program.ExitFailed, "belongs to user 1002", "user", "list")
}

// TestRefusedKeys checks that no key of other users becomes the master key, and that no refused key stays.
func TestRefusedKeys(t *testing.T) {
	storetest.OnSQLite(t)
	h := newHost(t)
	data := h.dir("data", self)
	h.serve(self, "--data-dir", data)(syscall.SIGTERM)
	replace := func(file string) []string {
		return []string{"secrets", "replace-master-key", "--new-file", file, "--data-dir", data}
	}
	open, first, second := filepath.Join(h.base, "open"), filepath.Join(h.base, "first"), filepath.Join(h.base, "second")
	must.OK(t, os.WriteFile(open, []byte(strings.Repeat("A", 43)+"=\n"), 0o644))
	h.refuses(self, program.ExitFailed, "is open to all users (mode 0644)", replace(open)...)
	h.ok(self, replace(first)...)
	h.refuses(self, program.ExitUsage, "is being replaced", replace(second)...)
	if _, err := os.Lstat(second); err == nil {
		t.Error("the refused key was left")
	}
	h.ok(self, replace(first)...) // the same key again
}

// TestKeysAsRoot runs commands of root that need the keys of a server with another user.
func TestKeysAsRoot(t *testing.T) {
	storetest.OnSQLite(t)
	if self != 0 {
		t.Skip("only root can become another user")
	}
	h := newHost(t)
	data := h.dir("data", serverUser)
	file := filepath.Join(h.base, "workflow-server.yaml")
	configure := func(text string) {
		t.Helper()
		must.OK(t, os.WriteFile(file, []byte("data_dir: "+data+"\n"+text), 0o644))
	}
	configure("")
	h.serve(serverUser)(syscall.SIGTERM)
	h.ok(0, "secrets", "rotate")
	h.ok(0, "oidc", "keys")

	// The new key is a file that only root can read, and so is the key from then on.
	keys := h.dir("keys", 0)
	key := filepath.Join(keys, "master-key-2")
	h.ok(0, "secrets", "replace-master-key", "--new-file", key)
	info := must.Get(os.Stat(key))(t)
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Uid != 0 || info.Mode() != 0o600 {
		t.Errorf("the new key has the mode %s and belongs to user %d", info.Mode(), stat.Uid)
	}
	refused := filepath.Join(keys, "refused")
	h.refuses(0, program.ExitUsage, "the new key in "+refused+" is not in use", "secrets", "replace-master-key", "--new-file", refused)
	configure("master_key_file: " + key + "\n")
	h.ok(0, "secrets", "replace-master-key", "--finish")
	h.ok(0, "secrets", "rotate")
	configure("master_key_command: cat " + key + "\n")
	if _, problem, code := h.says(0, "oidc", "rotate"); code != 0 {
		t.Errorf("oidc rotate ended with %d: %s", code, problem)
	}
	configure("")
	h.refuses(0, program.ExitFailed, "master key", "secrets", "rotate") // the old one
	must.OK(t, os.Remove(filepath.Join(data, "master-key")))
	must.OK(t, os.Symlink(key, filepath.Join(data, "master-key")))
	h.refuses(0, program.ExitFailed, "permission denied", "secrets", "rotate")
	must.OK(t, os.Remove(filepath.Join(data, "master-key")))
	configure("master_key_file: " + key + "\nexternal_url: https://deployments.example.com\n")

	// All files belong to the server, which can be exported only to where its user can write.
	must.OK(t, filepath.WalkDir(data, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if stat, ok := must.Get(entry.Info())(t).Sys().(*syscall.Stat_t); !ok || stat.Uid != serverUser {
			t.Errorf("%s belongs to user %d", path, stat.Uid)
		}
		return nil
	}))
	h.refuses(0, program.ExitFailed, "writes as user 1001", "oidc", "export", filepath.Join(keys, "oidc"))
	h.ok(0, "oidc", "export", h.dir("oidc", serverUser))

	// The server's user leads the database's log to a file of root.
	secret := filepath.Join(h.base, "secret")
	must.OK(t, os.WriteFile(secret, []byte("secret"), 0o600))
	wal := filepath.Join(data, "server.db-wal")
	_ = os.Remove(wal)
	must.OK(t, os.Symlink(secret, wal))
	for _, args := range [][]string{{"secrets", "rotate"}, {"secrets", "replace-master-key", "--finish"}, {"oidc", "rotate"}} {
		_, _, code := h.says(0, args...)
		if text := must.Get(os.ReadFile(secret))(t); string(text) != "secret" || code == 0 {
			t.Errorf("%v ended with %d, and the file of root contains %q", args, code, text)
		}
	}
}

// TestCommandDuringStart starts servers while commands look whether one runs.
func TestCommandDuringStart(t *testing.T) {
	storetest.OnSQLite(t)
	h := newHost(t)
	data := h.dir("data", self)
	h.serve(self, "--data-dir", data)(syscall.SIGTERM)
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				_ = h.command(self, "user", "list", "--data-dir", data).Run()
			}
		}
	}()
	for range 3 {
		h.serve(self, "--data-dir", data)(syscall.SIGTERM)
	}
	close(done)
	<-ended
}
