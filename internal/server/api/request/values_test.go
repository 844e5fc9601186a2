package request

import (
	"encoding/json"
	"strings"
	"testing"

	"workflowagent/internal/server/fault"
)

func TestCountValues(t *testing.T) {
	for text, want := range map[string]int64{
		``: 0, `5`: 0, `"a,b[{"`: 0, `[]`: 1, `{}`: 1, `[1,2,3]`: 3, `{"a":[1,2],"b":{}}`: 5,
		`["\"","\\",","]`: 3, `["\\\",[",""]`: 2,
	} {
		if got, err := countValues([]byte(text), 100); err != nil || got != want {
			t.Errorf("%s: %d values, %v; want %d", text, got, err, want)
		}
	}
}

func TestCountValuesRejects(t *testing.T) {
	many := "[" + strings.Repeat(`"",`, 200) + `""]`
	if _, err := countValues([]byte(many), 100); fault.KindOf(err) != fault.KindTooLarge {
		t.Errorf("too many values: %v", err)
	}
	deep := strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)
	if _, err := countValues([]byte(deep), 10_000); fault.KindOf(err) != fault.KindInvalid {
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

// FuzzCountValues checks that the count is never less than the number of values that a decoder
// finds.
func FuzzCountValues(f *testing.F) {
	f.Add([]byte(`{"a":[1,"\\",{}],"b":"\"[,"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		counted, err := countValues(data, 1<<40)
		var v any
		if json.Unmarshal(data, &v) != nil || err != nil {
			return
		}
		if n := values(v); counted < n {
			t.Errorf("%q: counted %d, decoded %d", data, counted, n)
		}
	})
}
