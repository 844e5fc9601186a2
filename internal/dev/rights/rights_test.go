package rights

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"read": "✓", "own team": "✓", "lease": "✓"}
	want := []Table{{
		Columns: []string{"read", "own team", "lease"},
		Rows:    map[string]map[string]string{"ann": all, "bob, the other": all, "eve": {"read": "✓", "own team": "403", "lease": "401"}},
	}}
	if diff := cmp.Diff(want, Tables(t, page, "caller, ")); diff != "" {
		t.Errorf("the tables differ (-want +got):\n%s", diff)
	}
}
