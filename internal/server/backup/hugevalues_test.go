package backup_test

import (
	"encoding/json"
	"runtime"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/backup"
	"workflowagent/internal/server/store"
)

// TestHugeValues checks that a forged row with one or many values, which is small in the compressed file, takes little
// more memory than the row has bytes, and that no error contains it.
func TestHugeValues(t *testing.T) {
	s := newSite(t, storetest.SQLiteUnraced(t))
	whole := s.backup(backup.Request{}).Path
	const bytes = 4 << 20
	many := func(value string) string { return strings.Repeat(value+",", bytes/(len(value)+1)) + value }
	for name, tt := range map[string]struct {
		table, value string
		kind         store.Kind // of the column that contains the value; "" adds it to the row
		want         string
	}{
		"values":                     {"stacks", many("0"), "", "values for"},
		"a text":                     {"stacks", `"` + strings.Repeat("a", bytes) + `"`, store.Text, ""},
		"escapes":                    {"stacks", `"` + strings.Repeat(`\u0001`, bytes/6) + `"`, store.Text, ""},
		"texts":                      {"stacks", "[" + many(`""`) + "]", store.Text, "it is not one text in base64"},
		"numbers in a text":          {"stacks", "[[" + many("0") + "]]", store.Text, "it is not one text in base64"},
		"a number instead of a text": {"stacks", strings.Repeat("1", bytes), store.Text, "it is no text"},
		"a long number":              {"stacks", strings.Repeat("1", bytes), store.Bigint, "it is no number"},
		"numbers for a number":       {"stacks", "[" + many("0") + "]", store.Bigint, "it is no number"},
		"numbers instead of bytes":   {"installation", "[" + many("0") + "]", store.Bytea, "it is not one text in base64"},
		"arrays":                     {"stacks", strings.Repeat("[", bytes), store.Text, "no valid JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyOf(t, whole)
			rewrite(t, dir, "tables/"+tt.table+".jsonl.zst", func(l []string, _ *backup.Manifest) []string {
				if tt.kind == "" {
					l[1] = strings.TrimSuffix(l[1], "]") + "," + tt.value + "]"
					return l
				}
				var columns []store.Column
				must.OK(t, json.Unmarshal([]byte(l[0]), &columns))
				var row []json.RawMessage
				must.OK(t, json.Unmarshal([]byte(l[1]), &row))
				at := slices.IndexFunc(columns, func(c store.Column) bool { return c.Kind == tt.kind })
				fields := make([]string, len(row))
				for i, field := range row {
					fields[i] = string(field)
				}
				fields[at] = tt.value
				l[1] = "[" + strings.Join(fields, ",") + "]"
				return l
			})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := backup.Verify(t.Context(), dir, "")
			runtime.ReadMemStats(&after)
			switch {
			case tt.want == "":
				must.OK(t, err)
			case err == nil || !strings.Contains(err.Error(), "row 1: ") || !strings.Contains(err.Error(), tt.want):
				t.Errorf("verifying: %.300v", err)
			case len(err.Error()) > 1000:
				t.Errorf("the error has %d bytes: %.300v", len(err.Error()), err)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 16*bytes {
				t.Errorf("allocated %d bytes for a row of %d", used, bytes)
			}
		})
	}
}
