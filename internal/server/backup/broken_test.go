package backup_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/backup"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/store"
)

// refuse checks that neither verify nor restore accepts the backup in a directory.
func refuse(t *testing.T, dir, want string) {
	t.Helper()
	if _, err := backup.Verify(t.Context(), dir, ""); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("verify: got %v, want %q", err, want)
	}
	to := newTarget(t, "sqlite")
	if _, err := backup.Restore(t.Context(), dir, to.Target); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("restore: got %v, want %q", err, want)
	}
	for _, name := range []string{strings.TrimPrefix(to.DSN, "sqlite:"), to.Options.BlobDir, to.MasterKey.File} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the refused restore has created %s: %v", name, err)
		}
	}
}

// TestTampered changes backups in ways that a disk, a mistake or an attacker can.
func TestTampered(t *testing.T) {
	needRoot(t)
	s := newSite(t, storetest.SQLiteUnraced(t))
	whole := s.backup(backup.Request{Passphrase: passphrase}).Path
	const log, state = "blobs/logs/job-s1/1/0", "blobs/stacks/s1/a"
	outside := filepath.Join(t.TempDir(), "outside")
	must.OK(t, os.WriteFile(outside, must.Get(os.ReadFile(filepath.Join(whole, log)))(t), 0o600))
	for name, tt := range map[string]struct {
		tamper func(dir string) error
		want   string
	}{
		"a changed state":          {flip(state), "does not match the hash"},
		"a changed table":          {flip("tables/stacks.jsonl.zst"), "tables/stacks.jsonl.zst: its content does not match"},
		"a changed list":           {flip("blobs.jsonl.zst"), "blobs.jsonl.zst: its content does not match"},
		"a changed key":            {flip("master-key.age"), "master-key.age: its content does not match"},
		"a truncated state":        {truncate(state), "bytes instead of"},
		"a truncated table":        {truncate("tables/stacks.jsonl.zst"), "bytes instead of"},
		"a truncated manifest":     {truncate("manifest.json"), "manifest.json is damaged"},
		"a longer log":             {appendTo(log, "more"), "it has more than 5 bytes"},
		"a missing log":            {remove(log), "a file is missing, or not listed"},
		"a missing last state":     {remove("blobs/stacks/s2/b"), "file does not exist"},
		"a missing table":          {remove("tables/stacks.jsonl.zst"), "files are missing"},
		"a missing key":            {remove("master-key.age"), "files are missing"},
		"an unlisted state":        {create("blobs/stacks/s1/c"), "not listed"},
		"an unlisted last state":   {create("blobs/stacks/s9"), "does not contain this file"},
		"an unlisted table":        {create("tables/more.jsonl.zst"), "its manifest does not name this file"},
		"another file":             {create("README"), "its manifest does not name this file"},
		"a link to a log":          {link(outside, log), "is a link"},
		"a link within the backup": {link("a", "blobs/stacks/s1/b"), "is a link"},
		"a link to a table":        {link(outside, "tables/stacks.jsonl.zst"), "is a link"},
		"a link to the manifest":   {link(outside, "manifest.json"), "is a link"},
		"a link to a directory":    {link(filepath.Dir(outside), "tables"), "is a link"},
		"a named pipe":             {pipe(log), "is a link, or another file"},
		"a writable file":          {mode(state, 0o620), "other users may write to blobs/stacks/s1/a"},
		"a writable directory":     {mode("blobs/stacks", 0o770), "other users may write to blobs/stacks"},
		"a readable backup":        {mode("", 0o755), "other users may read or write"},
		"a writable backup":        {mode("", 0o720), "can write to"},
		"a file of another user":   {own(state), "belongs to user 12345"},
		"another format":           {edit(`"format": 1`, `"format": 2`), "the backup has format 2, but this program reads format 1"},
		"an unknown member":        {edit(`"format": 1`, `"format": 1, "more": 1`), "unknown field"},
		"a table out of the tree":  {edit(`"name": "stacks"`, `"name": "../stacks"`), "has no valid name"},
		"a table twice":            {edit(`"name": "stacks"`, `"name": "states"`), "occurs twice"},
		"a huge size":              {edit(`"size": `, `"size": 9999999999999`), "bytes instead of"},
		"a negative size":          {edit(`"size": `, `"size": -`), "it has more than"},
		"fewer rows":               {edit(`"rows": 3`, `"rows": 2`), "it has more than 2 rows"},
		"more blobs":               {edit(`"count": 9`, `"count": 10`), "it lists 9 blobs"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyOf(t, whole)
			must.OK(t, tt.tamper(dir))
			refuse(t, dir, tt.want)
		})
	}
	must.Get(backup.Verify(t.Context(), copyOf(t, whole), ""))(t)
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to other users")
	}
}

// copyOf copies a backup.
func copyOf(t *testing.T, whole string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "copy")
	must.OK(t, os.CopyFS(dir, os.DirFS(whole)))
	must.OK(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return err
	}))
	return dir
}

func flip(name string) func(string) error {
	return func(dir string) error {
		path := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		data[len(data)/2] ^= 1
		return os.WriteFile(path, data, 0o600)
	}
}

func truncate(name string) func(string) error {
	return func(dir string) error {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		return os.Truncate(filepath.Join(dir, name), info.Size()/2)
	}
}

func appendTo(name, text string) func(string) error {
	return func(dir string) error {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), append(data, text...), 0o600)
	}
}

func remove(name string) func(string) error {
	return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
}

func create(name string) func(string) error {
	return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600) }
}

func link(to, name string) func(string) error {
	return func(dir string) error {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
		return os.Symlink(to, filepath.Join(dir, name))
	}
}

func pipe(name string) func(string) error {
	return func(dir string) error {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return err
		}
		return syscall.Mkfifo(filepath.Join(dir, name), 0o600)
	}
}

func mode(name string, mode fs.FileMode) func(string) error {
	return func(dir string) error { return os.Chmod(filepath.Join(dir, name), mode) }
}

func own(name string) func(string) error {
	return func(dir string) error { return os.Chown(filepath.Join(dir, name), 12345, -1) }
}

func edit(old, text string) func(string) error {
	return func(dir string) error {
		path := filepath.Join(dir, "manifest.json")
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !strings.Contains(string(data), old) {
			return fmt.Errorf("the manifest does not contain %s", old)
		}
		return os.WriteFile(path, []byte(strings.Replace(string(data), old, text, 1)), 0o600)
	}
}

// TestLongLine checks that a table with a line without an end is refused before it fills the memory, and that no backup
// contains such a line.
func TestLongLine(t *testing.T) {
	const limit = 1 << 20
	s := newSite(t, storetest.SQLiteUnraced(t))
	dir := s.backup(backup.Request{}).Path
	rewrite(t, dir, "tables/stacks.jsonl.zst", func(l []string, _ *backup.Manifest) []string {
		return append(l, strings.Repeat("[", 2*limit)+unended)
	})
	s.write(func(tx *store.Tx) error { return tx.SetInstallation("larger", make([]byte, limit)) })
	defer backup.LowerMaxLine(limit)()
	refuse(t, dir, "a line has more than 1048576 bytes")
	_, err := backup.Write(t.Context(), s.source(), backup.Request{Dir: s.backups}, func(backup.Progress) {})
	if err == nil || !strings.Contains(err.Error(), "but a backup supports only 1048576") {
		t.Errorf("a long row: %v", err)
	}
}

// TestDirectories checks which directories receive backups.
func TestDirectories(t *testing.T) {
	needRoot(t)
	s := newSite(t, storetest.SQLite(t))
	base := t.TempDir()
	dir := func(name string, mode fs.FileMode) string {
		path := filepath.Join(base, name)
		must.OK(t, os.Mkdir(path, 0o700))
		must.OK(t, os.Chmod(path, mode))
		return path
	}
	foreign := dir("foreign", 0o700)
	must.OK(t, os.Chown(foreign, 12345, -1))
	trap := dir("trap", 0o777)
	must.OK(t, os.Mkdir(filepath.Join(trap, "inner"), 0o700))
	for path, want := range map[string]string{
		"relative":                         "not an absolute path",
		filepath.Join(base, "no", "where"): "creating the directory for backups",
		dir("readable", 0o755):             "other users may read or write",
		dir("writable", 0o730):             "can write to",
		foreign:                            "belongs to user 12345, but the server runs as user 0",
		filepath.Join(trap, "inner"):       "can write to",
		s.key:                              "is not a directory",
	} {
		_, err := backup.Write(t.Context(), s.source(), backup.Request{Dir: path}, func(backup.Progress) {})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
	for path, want := range map[string]string{base: "contains none", filepath.Join(base, "missing"): "contains no backup"} {
		if _, err := backup.Verify(t.Context(), path, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("verifying %s: %v", path, err)
		}
	}
	must.OK(t, os.Mkdir(filepath.Join(base, ".partial-2026-01-01T00-00-00Z"), 0o700))
	if _, err := backup.Verify(t.Context(), filepath.Join(base, ".partial-2026-01-01T00-00-00Z"), ""); err == nil || !strings.Contains(err.Error(), "was interrupted") {
		t.Errorf("verifying a rest: %v", err)
	}
}

// counting is a context that ends after a number of checks, which several goroutines can make.
type counting struct {
	context.Context
	left *atomic.Int64
}

// countTo returns a context that ends after n checks.
func countTo(ctx context.Context, n int64) counting {
	c := counting{ctx, new(atomic.Int64)}
	c.left.Store(n)
	return c
}

func (c counting) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return c.Context.Err()
}

// TestCanceled ends a backup and a restore at steps of every kind. What remains is nothing, or whole.
func TestCanceled(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		steps := 0
		for n := int64(0); ; n += 1 + n {
			result, err := backup.Write(countTo(t.Context(), n), s.source(), backup.Request{Dir: s.backups, Keep: 1}, func(backup.Progress) {})
			entries, rerr := os.ReadDir(s.backups)
			if rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
				t.Fatal(rerr)
			}
			for _, e := range entries {
				if err != nil && e.Name() != ".lock" {
					t.Fatalf("the backup that ended after %d steps has left %s", n, e.Name())
				}
			}
			if err == nil {
				must.Get(backup.Verify(t.Context(), result.Path, ""))(t)
				break
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("after %d steps: %v", n, err)
			}
			steps++
		}
		if steps < 5 {
			t.Errorf("the backup ended after %d checks", steps)
		}
		to := newTarget(t, "sqlite")
		for n := int64(0); ; n += 1 + n {
			_, err := backup.Restore(countTo(t.Context(), n), s.backups, to.Target)
			if err == nil {
				break
			}
			if _, serr := os.Lstat(strings.TrimPrefix(to.DSN, "sqlite:")); !errors.Is(serr, fs.ErrNotExist) {
				t.Fatalf("the restore that ended after %d steps with %v has left a database", n, err)
			}
		}
		compare(t, content(t, to.open(), "stacks", "logs"), content(t, db, "stacks", "logs"))
	})
}

const childEnv = "TEST_BACKUP_CHILD"

// child writes backups, or restores one, until it is killed.
func child() {
	args := strings.Split(os.Getenv(childEnv), "\n")
	what, dir, file := args[0], args[1], args[2]
	ctx := context.Background()
	o := store.Options{Log: storetest.Log(), BlobDir: filepath.Join(filepath.Dir(file), "blobs")}
	if what == "restore" {
		println("begin")
		_, err := backup.Restore(ctx, dir, backup.Target{DSN: "sqlite:" + file, Options: o, MasterKey: keyring.Source{File: filepath.Join(filepath.Dir(file), "master-key")}, WithoutKey: true})
		if err != nil {
			println(err.Error())
			os.Exit(1)
		}
		println("end")
		return
	}
	db, err := store.Open(ctx, "sqlite:"+file, o)
	for err == nil {
		println("begin")
		_, err = backup.Write(ctx, backup.Source{DB: db, Version: "v1", Log: storetest.Log()}, backup.Request{Dir: dir, Keep: 2}, func(backup.Progress) {})
	}
	println(err.Error())
	os.Exit(1)
}

// killed runs a child and kills it when it has printed a number of lines and done reports so.
func killed(t *testing.T, what, dir, file string, done func() bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), must.Get(os.Executable())(t))
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{what, dir, file}, "\n"))
	lines := bufio.NewScanner(must.Get(cmd.StderrPipe())(t))
	must.OK(t, cmd.Start())
	if !lines.Scan() || lines.Text() != "begin" {
		t.Fatalf("the child says %q", lines.Text())
	}
	for !done() && cmd.Process.Signal(syscall.Signal(0)) == nil {
		must.OK(t, t.Context().Err())
	}
	_ = cmd.Process.Kill()
	for lines.Scan() {
		if text := lines.Text(); text != "begin" && text != "end" {
			t.Errorf("the child says %q", text)
		}
	}
	_ = cmd.Wait()
}

// TestKilled kills processes that write and restore backups.
func TestKilled(t *testing.T) {
	storetest.Unraced(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "server.db")
	db := must.Get(store.Open(t.Context(), "sqlite:"+file, store.Options{Log: storetest.Log(), BlobDir: filepath.Join(dir, "blobs")}))(t)
	s := newSite(t, db)
	s.backups = filepath.Join(dir, "backups")
	for i := range 12 {
		s.addStack(fmt.Sprint("more", i))
	}
	want := content(t, db, "stacks", "logs")
	must.OK(t, db.Close())
	for _, name := range []string{"tables", "tables/stacks.jsonl.zst", "blobs/logs", "blobs/stacks/s1", "manifest.json"} {
		appeared := func() bool {
			found, _ := filepath.Glob(filepath.Join(s.backups, ".partial-*", name))
			return len(found) > 0
		}
		killed(t, "backup", s.backups, file, appeared)
		for _, e := range must.Get(os.ReadDir(s.backups))(t) {
			path := filepath.Join(s.backups, e.Name())
			_, err := backup.Verify(t.Context(), path, "")
			if whole := !strings.HasPrefix(e.Name(), "."); whole != (err == nil) && e.IsDir() {
				t.Errorf("killed at %s: verifying %s: %v", name, e.Name(), err)
			}
		}
	}
	db = must.Get(store.Open(t.Context(), "sqlite:"+file, store.Options{Log: storetest.Log(), BlobDir: filepath.Join(dir, "blobs")}))(t)
	defer db.Close()
	s.db = db
	result := s.backup(backup.Request{Keep: 1})
	for _, e := range must.Get(os.ReadDir(s.backups))(t) {
		if e.Name() != ".lock" && e.Name() != filepath.Base(result.Path) {
			t.Errorf("the directory contains %s", e.Name())
		}
	}
	want["installation"] = content(t, db)["installation"] // has its id since the first backup
	to := newTarget(t, "sqlite")
	file = strings.TrimPrefix(to.DSN, "sqlite:")
	for _, name := range []string{"server.db.restoring", "blobs/logs", "blobs/stacks/s1"} {
		killed(t, "restore", s.backups, file, func() bool {
			_, err := os.Lstat(filepath.Join(filepath.Dir(file), name))
			return err == nil
		})
		if _, err := os.Lstat(file); err == nil { // it was faster than the signal
			must.OK(t, errors.Join(os.Remove(file), os.RemoveAll(to.Options.BlobDir)))
			continue
		}
		if db, err := store.Open(t.Context(), to.DSN, to.Options); err == nil || !strings.Contains(err.Error(), "a restore to it was interrupted") {
			t.Errorf("opening what a restore has left when it was killed at %s: %v", name, err)
			must.OK(t, errors.Join(db.Close(), os.Remove(file)))
		}
	}
	must.Get(backup.Restore(t.Context(), s.backups, to.Target))(t)
	compare(t, content(t, to.open(), "stacks", "logs"), want)
}

// TestInterruptedVerification checks that no server begins a new installation where a restore was interrupted while it
// still verified its backup, and that one that was refused leaves nothing.
func TestInterruptedVerification(t *testing.T) {
	s := newSite(t, storetest.SQLiteUnraced(t))
	dir := s.backup(backup.Request{}).Path
	to := newTarget(t, "sqlite")
	must.OK(t, remove("tables/users.jsonl.zst")(dir))
	if _, err := backup.Restore(t.Context(), dir, to.Target); err == nil || !strings.Contains(err.Error(), "files are missing") {
		t.Fatalf("restoring a damaged backup: %v", err)
	}
	if left := must.Get(os.ReadDir(filepath.Dir(to.MasterKey.File)))(t); len(left) > 0 {
		t.Errorf("the refused restore has left %v", left)
	}
	s = newSite(t, storetest.SQLiteUnraced(t))
	s.backup(backup.Request{})
	if _, err := backup.Restore(countTo(t.Context(), 1), s.backups, to.Target); !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupting the verification: %v", err)
	}
	db, err := store.Open(t.Context(), to.DSN, to.Options)
	if err == nil {
		must.OK(t, db.Close())
	}
	if err == nil || !strings.Contains(err.Error(), "a restore to it was interrupted") {
		t.Errorf("a server begins a new installation: %v", err)
	}
	must.Get(backup.Restore(t.Context(), s.backups, to.Target))(t)
	compare(t, content(t, to.open(), "stacks", "logs"), content(t, s.db, "stacks", "logs"))
}

// TestOlderBackup restores the backup of a server without the newest migration, whose schema the next start updates. The
// backup is made from one of this version.
func TestOlderBackup(t *testing.T) {
	const newest, table = 590, "oldest_programs"
	s := newSite(t, storetest.SQLiteUnraced(t))
	dir := s.backup(backup.Request{}).Path
	path := filepath.Join(dir, "manifest.json")
	var manifest backup.Manifest
	must.OK(t, json.Unmarshal(must.Get(os.ReadFile(path))(t), &manifest))
	manifest.Schema = slices.DeleteFunc(manifest.Schema, func(v int64) bool { return v == newest })
	manifest.Tables = slices.DeleteFunc(manifest.Tables, func(t backup.Table) bool { return t.Name == table })
	must.OK(t, os.WriteFile(path, must.Get(json.Marshal(manifest))(t), 0o600))
	must.OK(t, os.Remove(filepath.Join(dir, "tables", table+".jsonl.zst")))
	for engine := range engines(t) {
		t.Run(engine, func(t *testing.T) {
			to := newTarget(t, engine)
			must.Get(backup.Restore(t.Context(), dir, to.Target))(t)
			existing := to.Options
			existing.Existing = true
			if db, err := store.Open(t.Context(), to.DSN, existing); err == nil || !strings.Contains(err.Error(), "lacks version 590") {
				t.Errorf("a command opens the old schema: %v, %v", db, err)
			}
			db := must.Get(store.Open(t.Context(), to.DSN, to.Options))(t)
			defer db.Close()
			compare(t, content(t, db, "stacks", "logs"), content(t, s.db, "stacks", "logs"))
		})
	}
}
