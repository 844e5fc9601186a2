package backup_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/backup"
)

// TestManyValues checks that a forged row with many small values does not take much memory.
func TestManyValues(t *testing.T) {
	s := newSite(t, storetest.SQLiteUnraced(t))
	whole := s.backup(backup.Request{}).Path
	const bytes = 4 << 20
	for name, row := range map[string]string{
		"values": "[" + strings.Repeat("0,", bytes/2) + "0]",
		"texts":  `[[` + strings.Repeat(`"",`, bytes/3) + `""],`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyOf(t, whole)
			rewrite(t, dir, "tables/stacks.jsonl.zst", func(l []string, _ *backup.Manifest) []string {
				if strings.HasSuffix(row, ",") { // the first value of many
					_, rest, _ := strings.Cut(l[1], ",")
					row += rest
				}
				l[1] = row
				return l
			})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := backup.Verify(t.Context(), dir)
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), "row 1: ") {
				t.Errorf("verifying: %v", err)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 24*bytes {
				t.Errorf("allocated %d bytes for a row of %d", used, bytes)
			}
		})
	}
}

// TestChangedManifest checks that a restore notices each change of a manifest since its verification.
func TestChangedManifest(t *testing.T) {
	made := func() backup.Manifest {
		return backup.Manifest{Format: 1, Server: "v1", Engine: "SQLite", Time: time.Unix(1, 0), Installation: "i", Schema: []int64{1}, Key: &backup.Part{Size: 1}}
	}
	local := made()
	local.Time = local.Time.UTC()
	if !backup.EqualManifests(made(), local) {
		t.Error("the same manifest differs")
	}
	for name, change := range map[string]func(m *backup.Manifest){
		"time":         func(m *backup.Manifest) { m.Time = time.Unix(2, 0) },
		"installation": func(m *backup.Manifest) { m.Installation = "j" },
		"schema":       func(m *backup.Manifest) { m.Schema = []int64{1, 2} },
		"no key":       func(m *backup.Manifest) { m.Key = nil },
		"another key":  func(m *backup.Manifest) { m.Key.SHA256 = "x" },
		"tables":       func(m *backup.Manifest) { m.Tables = []backup.Table{{}} },
		"blobs":        func(m *backup.Manifest) { m.Blobs.Count = 1 },
	} {
		changed := made()
		if change(&changed); backup.EqualManifests(made(), changed) {
			t.Errorf("%s: the change is not noticed", name)
		}
	}
}
