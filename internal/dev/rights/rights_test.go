package rights

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/must"
)

func TestTables(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	const text = `
| other | x |
|---|---|
| a | b |

| caller, on a stack | permitted | else |
|---|---|---|
| ann<br>bob, the other | read, own team, lease | |
| eve | read | 403, lease 401 |

text
`
	must.OK(t, os.WriteFile(page, []byte(text), 0o600))
	all := map[string]string{"read": "✓", "own team": "✓", "lease": "✓"}
	want := []Table{{
		Columns: []string{"read", "own team", "lease"},
		Rows:    map[string]map[string]string{"ann": all, "bob, the other": all, "eve": {"read": "✓", "own team": "403", "lease": "401"}},
	}}
	if diff := cmp.Diff(want, Tables(t, page, "caller, ")); diff != "" {
		t.Errorf("the tables differ (-want +got):\n%s", diff)
	}
}
