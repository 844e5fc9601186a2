package diff_test

import (
	"strings"
	"testing"

	"workflowagent/internal/server/stacks/changes/diff"
)

func ciphertext(text string) string {
	return `{"4dabf18193072939515e22adb298388d":"1b47061264138c4ac30d75fd1eb44270","ciphertext":"` + text + `"}`
}

// TestStates compares a resource in two states.
func TestStates(t *testing.T) {
	for name, c := range map[string]struct{ before, after, want string }{
		"created":            {``, `{"inputs":{"a":1},"outputs":{"a":1,"arn":"x"}}`, `add a:  → 1; add arn:  → "x"`},
		"deleted":            {`{"outputs":{"a":1}}`, ``, `delete a: 1 → `},
		"only an input":      {`{"inputs":{"a":"X"},"outputs":{"a":"x"}}`, `{"inputs":{"a":"x"},"outputs":{"a":"x"}}`, `update a (input): "X" → "x"`},
		"output and input":   {`{"inputs":{"a":1},"outputs":{"a":1}}`, `{"inputs":{"a":2},"outputs":{"a":2}}`, `update a: 1 → 2`},
		"same ciphertext":    {`{"outputs":{"p":` + ciphertext("one") + `}}`, `{"outputs":{"p":` + ciphertext("one") + `}}`, ``},
		"other ciphertext":   {`{"outputs":{"p":` + ciphertext("one") + `}}`, `{"outputs":{"p":` + ciphertext("two") + `}}`, `update p: [secret] → [secret]`},
		"becomes secret":     {`{"outputs":{"p":"hunter2"}}`, `{"outputs":{"p":` + ciphertext("two") + `}}`, `update p: [not shown] → [secret]`},
		"was secret":         {`{"outputs":{"p":` + ciphertext("one") + `}}`, `{"outputs":{"p":{"k":"hunter2"}}}`, `update p: [secret] → [not shown]`},
		"secret in a list":   {`{"outputs":{"l":[1,` + ciphertext("one") + `]}}`, `{"outputs":{"l":[1,` + ciphertext("two") + `]}}`, `update l[1]: [secret] → [secret]`},
		"plaintext in state": {`{"outputs":{"p":` + secret + `}}`, `{"outputs":{"p":` + strings.Replace(secret, "hunter2", "hunter3", 1) + `}}`, `update p: [secret] → [secret]`},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := diff.States(nilIfEmpty(c.before), nilIfEmpty(c.after))
			if err != nil {
				t.Fatal(err)
			}
			if got := words(d); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			for _, p := range d.Same {
				if strings.Contains(p.Value, "hunter") {
					t.Errorf("an unchanged property shows a secret: %v", p)
				}
			}
		})
	}
}

func nilIfEmpty(text string) []byte {
	if text == "" {
		return nil
	}
	return []byte(text)
}
