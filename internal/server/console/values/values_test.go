package values_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"workflowagent/internal/server/console/values"
)

// TestEmbedded shows JSON in strings like other values.
func TestEmbedded(t *testing.T) {
	const secret = `{"4dabf18193072939515e22adb298388d":"1b47061264138c4ac30d75fd1eb44270","ciphertext":"c2VjcmV0"}`
	for text, want := range map[string]string{
		` {"a":[12345678901234567890]} `: "{\n  \"a\": [\n    12345678901234567890\n  ]\n}",
		`{"a":` + secret + `}`:           "{\n  \"a\": \"[secret]\"\n}",
		secret:                           "[secret]",
		`[1] and more`:                   `[1] and more`,
		`{"a"`:                           `{"a"`,
	} {
		list, _ := values.Flat(object("x", text))
		if len(list) != 1 || list[0].Text != want || list[0].Secret != (text == secret) {
			t.Errorf("%s is shown as %+v, want %q", text, list, want)
		}
	}
}

// TestMemory shows values that are made to need much memory.
func TestMemory(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	wide := "[" + strings.Repeat(deep(35)+",", 1000) + "1]"
	many, inner := map[string]any{}, map[string]any{}
	for i := range 5_000 {
		many[fmt.Sprintf("%05d", i)] = json.RawMessage(deep(39))
		inner[fmt.Sprint(i)] = 1
	}
	flat, _ := json.Marshal(many) // always valid
	for name, object := range map[string][]byte{
		"deep":       object("x", deep(10_000)),
		"wide":       object("x", wide),
		"many":       flat,
		"long paths": object(strings.Repeat("x", 32<<10), inner),
	} {
		for _, show := range []func(){
			func() { values.Of(object) },
			func() { values.Flat(object) },
			func() { values.Count(object) },
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			show()
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 40<<20 {
				t.Errorf("%s: %d bytes need %d bytes of memory", name, len(object), n)
			}
		}
		list, more := values.Flat(object)
		kept := 0
		for _, v := range list {
			kept += len(v.Name) + len(v.Text)
		}
		if n := values.Count(object); n != len(list)+more || len(list) > 200 || kept > 200*(18<<10) {
			t.Errorf("%s: %d properties, and %d and %d more are shown with %d bytes", name, n, len(list), more, kept)
		}
	}
	if list, _ := values.Flat(object("x", wide)); strings.Contains(list[0].Text, "\n") {
		t.Errorf("a long value is indented: %.100s", list[0].Text)
	}
}

func object(name string, value any) []byte {
	out, _ := json.Marshal(map[string]any{name: value}) // always valid
	return out
}
