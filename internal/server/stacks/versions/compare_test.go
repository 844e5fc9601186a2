package versions_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/stacks/versions"
)

const secretMark = `"4dabf18193072939515e22adb298388d":"1b47061264138c4ac30d75fd1eb44270"`

func urn(name string) string { return "urn:pulumi:s::p::t:m:T::" + name }

func list(texts ...string) versions.Resources {
	return func(yield func([]byte, error) bool) {
		for _, text := range texts {
			if !yield([]byte(text), nil) {
				return
			}
		}
	}
}

func one(name, more string) string {
	return fmt.Sprintf(`{"urn":%q,"type":"t:m:T"%s}`, urn(name), more)
}

func TestCompare(t *testing.T) {
	before := list(
		one("same", `,"id":"1","outputs":{"a":1},"modified":"2026-01-01"`), one("gone", ""), one("new-id", `,"id":"1"`), one("changed", `,"outputs":{"a":1}`),
		one("secret", `,"outputs":{"s":{`+secretMark+`,"ciphertext" : "one"},"a":1}`), one("both", `,"outputs":{"s":{`+secretMark+`,"ciphertext":"one"},"a":1}`),
		one("waits", `,"delete":true`), one("protected", `,"protect":true`), one("twice", ""), one("twice", ""), one("ciphertext", `,"outputs":{"ciphertext":["one"]}`), `{"urn":5}`,
	)
	after := list(
		one("same", `,"id":"1","outputs":{"a":1},"modified":"2026-02-02"`), one("new-id", `,"id":"2"`), one("new-id", `,"id":"1","delete":true`), one("changed", `,"outputs":{"a":2}`),
		one("secret", `,"outputs":{"s":{`+secretMark+`,"ciphertext" : "two"},"a":1}`), one("both", `,"outputs":{"s":{`+secretMark+`,"ciphertext":"two"},"a":2}`),
		one("protected", ""), one("twice", ""), one("ciphertext", `,"outputs":{"ciphertext":["two"]}`), one("made", ""),
	)
	tree, err := versions.Compare(before, after)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range tree.Rows {
		got = append(got, r.Name+" "+r.Op)
	}
	want := "same same, new-id replace, changed update, secret secret, both update, protected update, twice same, ciphertext update, made create, gone delete"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

func TestFind(t *testing.T) {
	strange := "x\u00e9<\"quoted\">"
	before := list(one("a", `,"outputs":{"v":1}`), one("b", `,"dependencies":["`+urn("a")+`"]`))
	after := list(one("a", `,"outputs":{"v":2}`), one("a", `,"delete":true`), one(strange, `,"dependencies":["`+urn("a")+`","`+urn("a")+`"]`))
	p, err := versions.Find(before, after, urn("a"))
	if err != nil || !strings.Contains(string(p.Old), `"v":1`) || !strings.Contains(string(p.New), `"v":2`) || p.Dependents != 1 {
		t.Errorf("%v: %s, %s, %d", err, p.Old, p.New, p.Dependents)
	}
	if p, err = versions.Find(before, after, urn(strange)); err != nil || p.Old != nil || p.New == nil {
		t.Errorf("%v: %s, %s", err, p.Old, p.New)
	}
	if p, err = versions.Find(before, list(), urn("a")); err != nil || p.New != nil || p.Dependents != 1 {
		t.Errorf("a deleted resource: %v: %s, %d", err, p.New, p.Dependents)
	}
}

func TestErrors(t *testing.T) {
	broken := errors.New("broken")
	fails := func(yield func([]byte, error) bool) { yield(nil, broken) }
	for _, pair := range [][2]versions.Resources{{fails, list()}, {list(), fails}} {
		if _, err := versions.Compare(pair[0], pair[1]); !errors.Is(err, broken) {
			t.Errorf("Compare: %v", err)
		}
		if _, err := versions.Find(pair[0], pair[1], urn("a")); !errors.Is(err, broken) {
			t.Errorf("Find: %v", err)
		}
	}
	many := func(yield func([]byte, error) bool) {
		for i := range changes.MaxRows + 1 {
			if !yield([]byte(one(fmt.Sprint(i), "")), nil) {
				return
			}
		}
	}
	for _, pair := range [][2]versions.Resources{{many, list()}, {list(), many}} {
		if _, err := versions.Compare(pair[0], pair[1]); fault.KindOf(err) != fault.KindTooLarge {
			t.Errorf("too many resources: %v", err)
		}
	}
}
