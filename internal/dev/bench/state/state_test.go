package state

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"workflowagent/internal/dev/bench/site"
	"workflowagent/internal/dev/must"
)

func TestSyntheticState(t *testing.T) {
	state := site.State("large", 3)
	packed := must.Get(compress(state))(t)
	z := must.Get(gzip.NewReader(strings.NewReader(string(packed))))(t)
	plain, err := io.ReadAll(z)
	if err != nil || string(plain) != string(state) {
		t.Errorf("the compressed state is %d bytes of %d, %v", len(plain), len(state), err)
	}
	var decoded struct {
		Deployment struct {
			Resources []struct{ URN, Parent string }
		}
	}
	must.OK(t, json.Unmarshal(state, &decoded))
	resources := decoded.Deployment.Resources
	if len(resources) != 4 {
		t.Fatalf("%d resources, want the stack and 3", len(resources))
	}
	seen := map[string]bool{}
	for i, r := range resources {
		if seen[r.URN] || i > 0 && !seen[r.Parent] {
			t.Errorf("resource %d with the parent %q is doubled or precedes its parent", i, r.Parent)
		}
		seen[r.URN] = true
	}
}

func TestPerResource(t *testing.T) {
	if got := perResource([]float64{1, 5}, 1000); len(got) != 2 || got[0] != 1 || got[1] != 5 {
		t.Errorf("1 s and 5 s of 1000 are %v ms each", got)
	}
}
