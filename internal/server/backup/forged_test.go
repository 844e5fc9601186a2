package backup_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/backup"
)

// unended at the end of the last line that [rewrite] writes leaves out the end of that line.
const unended = "(unended)"

// rewrite replaces a compressed file of a backup, and what its manifest says of it, as an attacker can who may write to
// the backup.
func rewrite(t *testing.T, dir, name string, change func(lines []string, m *backup.Manifest) []string) {
	t.Helper()
	path, manifestPath := filepath.Join(dir, name), filepath.Join(dir, "manifest.json")
	var m backup.Manifest
	must.OK(t, json.Unmarshal(must.Get(os.ReadFile(manifestPath))(t), &m))
	decoder := must.Get(zstd.NewReader(nil))(t)
	defer decoder.Close()
	text := must.Get(decoder.DecodeAll(must.Get(os.ReadFile(path))(t), nil))(t)
	lines := change(strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), &m)
	encoder := must.Get(zstd.NewWriter(nil))(t)
	data := encoder.EncodeAll([]byte(strings.TrimSuffix(strings.Join(lines, "\n")+"\n", unended+"\n")), nil)
	must.OK(t, encoder.Close())
	sum := sha256.Sum256(data)
	part := backup.Part{Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
	if name == "blobs.jsonl.zst" {
		m.Blobs.Part = part
	}
	for i := range m.Tables {
		if "tables/"+m.Tables[i].Name+".jsonl.zst" == name {
			m.Tables[i].Part = part
		}
	}
	must.OK(t, os.WriteFile(path, data, 0o600))
	must.OK(t, os.WriteFile(manifestPath, must.Get(json.Marshal(m))(t), 0o600))
}

// TestForged refuses backups whose hashes are right, but whose content no server has written.
func TestForged(t *testing.T) {
	s := newSite(t, storetest.SQLiteUnraced(t))
	whole := s.backup(backup.Request{}).Path
	entry := func(key string, size int64) string {
		return string(must.Get(json.Marshal(backup.Blob{Key: key, Size: size, SHA256: strings.Repeat("0", 64)}))(t))
	}
	type lines = []string
	blobs := func(change func(l lines, m *backup.Manifest) lines) func(*testing.T, string) {
		return func(t *testing.T, dir string) { t.Helper(); rewrite(t, dir, "blobs.jsonl.zst", change) }
	}
	add := func(key string, size int64) func(*testing.T, string) {
		return blobs(func(l lines, m *backup.Manifest) lines {
			m.Blobs.Count++
			m.Blobs.Bytes += size
			return append(l, entry(key, size))
		})
	}
	table := func(name string, change func(l lines, m *backup.Manifest) lines) func(*testing.T, string) {
		return func(t *testing.T, dir string) { t.Helper(); rewrite(t, dir, "tables/"+name+".jsonl.zst", change) }
	}
	replaced := func(old, text string) func(lines, *backup.Manifest) lines {
		return func(l lines, _ *backup.Manifest) lines {
			return strings.Split(strings.ReplaceAll(strings.Join(l, "\n"), old, text), "\n")
		}
	}
	for name, tt := range map[string]struct {
		forge func(t *testing.T, dir string)
		want  string
	}{
		"a blob outside of the backup": {add("zz/../../outside", 4), "invalid blob key"},
		"an absolute blob":             {add("/etc/passwd", 4), "invalid blob key"},
		"a hidden blob":                {add("zz/.postponed", 4), "invalid blob key"},
		"a long name":                  {add("zz/"+strings.Repeat("a", 200), 4), "invalid blob key"},
		"a line without end":           {add("zz/"+strings.Repeat("a/", 5000)+"a", 4), "a line has more than"},
		"a missing blob":               {add("zz/a", 4), "file does not exist"},
		"a huge blob":                  {add("zz/a", math.MaxInt64), "file does not exist"},
		"a huge existing blob": {blobs(func(l lines, m *backup.Manifest) lines {
			var last backup.Blob
			must.OK(t, json.Unmarshal([]byte(l[len(l)-1]), &last))
			m.Blobs.Bytes += math.MaxInt64 - last.Size
			l[len(l)-1] = entry(last.Key, math.MaxInt64)
			return l
		}), "bytes instead of"},
		"a negative blob": {add("zz/a", -4), "has the size -4"},
		"a blob twice":    {blobs(func(l lines, m *backup.Manifest) lines { m.Blobs.Count++; return append(l, l[len(l)-1]) }), "against the order"},
		"another order": {blobs(func(l lines, _ *backup.Manifest) lines {
			slices.Reverse(l)
			return l
		}), "a file is missing, or not listed"},
		"no blobs":                    {blobs(func(lines, *backup.Manifest) lines { return lines{"[]"} }), "cannot unmarshal"},
		"a row of another form":       {table("stacks", replaced(`["s1"`, `{"s1"`)), "row"},
		"a row with too many values":  {table("stacks", func(l lines, _ *backup.Manifest) lines { l[1] = strings.TrimSuffix(l[1], "]") + ",1]"; return l }), "values for"},
		"a column of another kind":    {table("stacks", func(l lines, _ *backup.Manifest) lines { l[0] = strings.ReplaceAll(l[0], "text", "bigint"); return l }), "are not those of the schema"},
		"a column of an unknown kind": {table("stacks", func(l lines, _ *backup.Manifest) lines { l[0] = strings.ReplaceAll(l[0], "bigint", "jsonb"); return l }), "are not those of the schema"},
		"a renamed column":            {table("users", replaced(`"login"`, `"logins"`)), "are not those of the schema"},
		"a column to inject": {table("stacks", func(l lines, _ *backup.Manifest) lines {
			l[0] = strings.Replace(l[0], `"name":"name"`, `"name":"name\") --"`, 1)
			return l
		}), "are not those of the schema"},
		"a renamed table": {func(t *testing.T, dir string) {
			t.Helper()
			must.OK(t, edit(`"name": "users"`, `"name": "persons"`)(dir))
			must.OK(t, os.Rename(filepath.Join(dir, "tables", "users.jsonl.zst"), filepath.Join(dir, "tables", "persons.jsonl.zst")))
		}, "lacks the table users of its schema"},
		"a removed table": {func(t *testing.T, dir string) {
			t.Helper()
			table("users", func(l lines, m *backup.Manifest) lines {
				m.Tables = slices.DeleteFunc(m.Tables, func(t backup.Table) bool { return t.Name == "users" })
				return l
			})(t, dir)
			must.OK(t, remove("tables/users.jsonl.zst")(dir))
		}, "but its schema"},
		"a newer schema": {func(t *testing.T, dir string) {
			t.Helper()
			must.OK(t, edit(`"schema": [`, `"schema": [ 999999,`)(dir))
		}, "of a newer workflow-server, v1: its schema has version 999999"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyOf(t, whole)
			tt.forge(t, dir)
			refuse(t, dir, tt.want)
		})
	}
	for name, tt := range map[string]struct {
		forge func(t *testing.T, dir string)
		want  string
	}{
		"a foreign stack": {table("states", replaced(`"s1"`, `"of-another-installation"`)), "refers to a missing one"},
	} {
		t.Run(name, func(t *testing.T) { // only a database knows
			dir, to := copyOf(t, whole), newTarget(t, "sqlite")
			tt.forge(t, dir)
			if _, err := backup.Restore(t.Context(), dir, to.Target); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if entries := must.Get(filepath.Glob(strings.TrimPrefix(to.DSN, "sqlite:") + "*"))(t); len(entries) > 0 {
				t.Errorf("the refused restore has left %v", entries)
			}
		})
	}
	unchanged := copyOf(t, whole)
	rewrite(t, unchanged, "blobs.jsonl.zst", func(l []string, _ *backup.Manifest) []string { return l })
	must.Get(backup.Verify(t.Context(), unchanged, ""))(t)
}
