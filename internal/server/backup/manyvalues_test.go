package backup_test

import (
	"runtime"
	"strings"
	"testing"

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
			_, err := backup.Verify(t.Context(), dir, "")
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
