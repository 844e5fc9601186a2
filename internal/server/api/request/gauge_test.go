package request

import (
	"encoding/json"
	"strings"
	"testing"

	"workflowagent/internal/server/fault"
)

func TestGaugeCountsValues(t *testing.T) {
	for text, want := range map[string]int64{
		``: 0, `5`: 0, `"a,b[{"`: 0, `[]`: 1, `{}`: 1, `[1,2,3]`: 3, `{"a":[1,2],"b":{}}`: 5,
		`["\"","\\",","]`: 3, `["\\\",[",""]`: 2,
	} {
		whole := gauge{limit: 100}
		if err := whole.count([]byte(text)); err != nil || whole.values != want || whole.depth != 0 {
			t.Errorf("%s: %d values, depth %d, %v; want %d values", text, whole.values, whole.depth, err, want)
		}
		pieces := gauge{limit: 100}
		for i := range len(text) {
			if err := pieces.count([]byte(text[i : i+1])); err != nil {
				t.Fatal(err)
			}
		}
		if pieces.values != want {
			t.Errorf("%s, byte by byte: %d values, want %d", text, pieces.values, want)
		}
	}
}

func TestGaugeRefuses(t *testing.T) {
	many := "[" + strings.Repeat(`"",`, 200) + `""]`
	if err := (&gauge{limit: 100}).count([]byte(many)); fault.KindOf(err) != fault.KindTooLarge {
		t.Errorf("too many values: %v", err)
	}
	deep := strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)
	if err := (&gauge{limit: 10_000}).count([]byte(deep)); fault.KindOf(err) != fault.KindInvalid {
		t.Errorf("too deep: %v", err)
	}
}

func values(v any) (n int64) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			n += values(e)
		}
		return n + max(1, int64(len(v)))
	case map[string]any:
		for _, e := range v {
			n += values(e)
		}
		return n + max(1, int64(len(v)))
	}
	return 0
}

// FuzzGauge checks that the count is never less than that of a decoder.
func FuzzGauge(f *testing.F) {
	f.Add([]byte(`{"a":[1,"\\",{}],"b":"\"[,"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		g := gauge{limit: 1 << 40}
		err := g.count(data)
		var v any
		if json.Unmarshal(data, &v) != nil || err != nil {
			return
		}
		if n := values(v); g.values < n {
			t.Errorf("%q: counted %d, decoded %d", data, g.values, n)
		}
	})
}
