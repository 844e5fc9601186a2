package diff_test

import (
	"fmt"
	"strings"
	"testing"

	"workflowagent/internal/server/stacks/changes/diff"
)

const secret = `{"4dabf18193072939515e22adb298388d":"1b47061264138c4ac30d75fd1eb44270","plaintext":"\"hunter2\""}`

func TestOf(t *testing.T) {
	for name, c := range map[string]struct{ step, want string }{
		"inputs": {
			`{"op":"update","old":{"inputs":{"a":1,"b":"x","gone":true,"same":[1]}},"new":{"inputs":{"a":2,"b":"x","made":{"k":"v"},"same":[1]}}}`,
			`update a: 1 → 2; delete gone: true → ; add made:  → { "k": "v" }`,
		},
		"replace causes first": {
			`{"op":"replace","keys":["zone"],"detailedDiff":{"size":{"diffKind":"update"},"zone":{"diffKind":"update-replace"}},
			  "old":{"inputs":{"size":1,"zone":"a"}},"new":{"inputs":{"size":2,"zone":"b"}}}`,
			`update! zone: "a" → "b"; update size: 1 → 2`,
		},
		"paths": {
			`{"op":"update","detailedDiff":{"tags[\"a.b\"]":{"diffKind":"add"},"list[1].x":{"diffKind":"delete"}},
			  "old":{"inputs":{"list":[{},{"x":1}]}},"new":{"inputs":{"tags":{"a.b":"c"},"list":[{},{}]}}}`,
			`delete list[1].x: 1 → ; add tags["a.b"]:  → "c"`,
		},
		"embedded JSON": {
			`{"op":"update","old":{"inputs":{"policy":"{\"s\":[1,2]}"}},"new":{"inputs":{"policy":"{\"s\":[1,3]}"}}}`,
			`update policy (JSON).s[1]: 2 → 3`,
		},
		"secrets":         {`{"op":"update","detailedDiff":{"p":{"diffKind":"update"}},"old":{"inputs":{"p":` + secret + `}},"new":{"inputs":{"p":"[secret]"}}}`, `update p: [secret] → [secret]`},
		"nested secrets":  {`{"op":"create","new":{"inputs":{"o":{"p":` + secret + `}}}}`, `add o:  → { "p": "[secret]" }`},
		"unknown":         {`{"op":"update","old":{"inputs":{"id":"x"}},"new":{"inputs":{"id":"04da6b54-80e4-46f7-96ec-b56ff0331ba9"}}}`, `update id: "x" → known after the update`},
		"create":          {`{"op":"create","new":{"inputs":{"a":1,"__defaults":[]}}}`, `add a:  → 1`},
		"lines":           {`{"op":"update","old":{"inputs":{"t":"a\nb\nc"}},"new":{"inputs":{"t":"a\nx\nc"}}}`, `update t:  →  | a|-b|+x| c`},
		"only provider":   {`{"op":"update","detailedDiff":{"q":{"diffKind":"update"}},"old":{},"new":{}}`, `update q: null → null`},
		"control removed": {`{"op":"create","new":{"inputs":{"a":"x\u001b[31my\u202e"}}}`, `add a:  → "xy"`},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := diff.Of([]byte(c.step))
			if err != nil {
				t.Fatal(err)
			}
			if got := words(d); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if strings.Contains(fmt.Sprint(d), "hunter2") {
				t.Error("the diff contains a secret")
			}
		})
	}
}

// TestOfRefresh checks that the new values are those that were found, also where a provider leaves the inputs as they are.
func TestOfRefresh(t *testing.T) {
	for name, c := range map[string]struct{ step, want string }{
		"outputs": {
			`{"op":"update","detailedDiff":{"a":{"diffKind":"update-replace"},"gone":{"diffKind":"delete"},"more":{"diffKind":"add"}},
			  "old":{"inputs":{"a":1,"gone":2},"outputs":{"a":1,"gone":2}},"new":{"inputs":{"a":1,"gone":2},"outputs":{"a":7,"more":3}}}`,
			`update! a: 1 → 7; delete gone: 2 → ; add more:  → 3`,
		},
		"inputs": {
			`{"op":"update","detailedDiff":{"a":{"diffKind":"update","inputDiff":true}},
			  "old":{"inputs":{"a":1},"outputs":{"a":0}},"new":{"inputs":{"a":7},"outputs":{"a":8}}}`,
			`update a: 1 → 7`,
		},
		"without a detailed difference": {
			`{"op":"update","old":{"inputs":{"a":1},"outputs":{"a":1,"p":` + secret + `}},"new":{"inputs":{"a":1},"outputs":{"a":2,"p":` + secret + `}}}`,
			`update a: 1 → 2`,
		},
		"deleted": {`{"op":"delete","old":{"inputs":{"a":1},"outputs":{"a":1,"arn":"x"}}}`, `delete a: 1 → `},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := diff.OfRefresh([]byte(c.step))
			if err != nil {
				t.Fatal(err)
			}
			if got := words(d); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func words(d diff.Diff) string {
	out := make([]string, 0, len(d.Changes))
	for _, c := range d.Changes {
		mark := ""
		if c.Replace {
			mark = "!"
		}
		text := fmt.Sprintf("%s%s %s: %s → %s", c.Kind, mark, c.Path, c.Old, c.New)
		if len(c.Lines) > 0 {
			text += " "
		}
		for _, l := range c.Lines {
			text += "|" + map[diff.Kind]string{"": " ", diff.Add: "+", diff.Delete: "-"}[l.Kind] + l.Text
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

func FuzzOf(f *testing.F) {
	f.Add(`{"op":"update","detailedDiff":{"a[":{"diffKind":"update"},"[\"":{}},"old":{"inputs":{"a":[[[]]]}},"new":{"inputs":{"a":"[[]]"}}}`)
	f.Add(`{"old":{"inputs":{"a":` + secret + `}}}`)
	f.Fuzz(func(t *testing.T, step string) {
		d, err := diff.Of([]byte(step))
		if err == nil && len(d.Changes) > 300 {
			t.Errorf("%d changes", len(d.Changes))
		}
	})
}
