package stacks

import (
	"fmt"
	"strings"
	"testing"

	"workflowagent/internal/server/store"
)

// TestNameReader reads the names of resources from a state that arrives in pieces of any size.
func TestNameReader(t *testing.T) {
	urn := func(kind, name string) string {
		return fmt.Sprintf(`{"urn":"urn:pulumi:dev::box::%s::%s","id":"x","outputs":{"text":"\"urn\":"}},`, kind, name)
	}
	text := `{"resources":[` + urn("pulumi:pulumi:Stack", "box-dev") + urn("pulumi:providers:aws", "default") + urn("my:Part$aws:s3/bucket:Bucket", "up-loads") +
		urn("aws:s3/bucket:Bucket", "up-loads") + urn("a:b:C", `say \"hi\" é`) + `{"urn":"urn:pulumi:` + strings.Repeat("x", 2*maxURN) + `"},` + `{"urn":7},{"urn": "urn:pulumi:dev::box::a:b:C::last"}]}`
	want := []store.ResourceName{{Type: "aws:s3/bucket:Bucket", Name: "up-loads"}, {Type: "a:b:C", Name: `say "hi" é`}, {Type: "a:b:C", Name: "last"}}
	for _, size := range []int{1, 7, 100, len(text)} {
		var n nameReader
		for rest := text; rest != ""; {
			piece := rest[:min(size, len(rest))]
			rest = rest[len(piece):]
			if _, err := n.Write([]byte(piece)); err != nil {
				t.Fatal(err)
			}
		}
		if fmt.Sprint(n.found) != fmt.Sprint(want) {
			t.Errorf("in pieces of %d bytes, found %v", size, n.found)
		}
	}
}
