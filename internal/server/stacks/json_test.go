package stacks

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMembersAndElements(t *testing.T) {
	for _, in := range []string{
		`{}`, `[]`, `{"a":1}`, ` { "a" : [ 1 , {"b":"}"} ] , "c" : "\\\"" , "d":null } `,
		`[{"a":"]"},[],"x\\",-1.5e3,true]`, `"text"`, `5`, `{"\u0061":1,"a":2}`, `{"":{}}`,
	} {
		checkAgainstDecoder(t, []byte(in))
	}
}

// checkAgainstDecoder compares with encoding/json.
func checkAgainstDecoder(t *testing.T, data []byte) {
	t.Helper()
	var obj map[string]json.RawMessage
	if json.Unmarshal(data, &obj) == nil && obj != nil {
		got := map[string]string{}
		for k, v := range members(data) {
			var key string
			if err := json.Unmarshal([]byte(`"`+k+`"`), &key); err != nil {
				t.Fatalf("%s: key %q: %v", data, k, err)
			}
			got[key] = string(v)
		}
		want := map[string]string{}
		for k, v := range obj {
			want[k] = string(v)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("members of %s (-want +got):\n%s", data, diff)
		}
	}
	var list []json.RawMessage
	if json.Unmarshal(data, &list) == nil && list != nil {
		got, want := []string{}, []string{}
		for v := range elements(data) {
			got = append(got, string(v))
		}
		for _, v := range list {
			want = append(want, string(v))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("elements of %s (-want +got):\n%s", data, diff)
		}
	}
}

func FuzzMembersAndElements(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"}\""}],"c":"\\"}`))
	f.Add([]byte(`[[],{},"",0]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) || strings.ContainsRune(string(data), '\uFFFD') {
			// Broken text: encoding/json repairs keys that we leave alone.
			for range members(data) {
			}
			for range elements(data) {
			}
			return
		}
		checkAgainstDecoder(t, data)
	})
}

func TestTexts(t *testing.T) {
	for doc, want := range map[string][]string{
		``: nil, `null`: nil, `5`: nil, `[1,{}]`: nil, `"one"`: {"one"}, `""`: {""},
		`{"a":"b","c":["d\"e",{"":null}],"f\\":"}]"}`: {"a", "b", "c", `d\"e`, "", `f\\`, "}]"},
	} {
		var got []string
		for text := range texts([]byte(doc)) {
			got = append(got, string(text))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", doc, got, want)
		}
	}
}

func TestStateCountsItsResources(t *testing.T) {
	for body, want := range map[string]int64{
		`{"version":3,"deployment":{"resources":[{"resources":[1,2]},{}]}}`: 2,
		`{"version":3,"deployment":{"resources":[]}}`:                       0,
		`{"version":3,"deployment":{"resources":null}}`:                     0,
		`{"version":3,"deployment":{}}`:                                     0,
		`{"version":3,"deployment":null}`:                                   0,
		`{}`:                                                                0,
	} {
		st, err := ParseState([]byte(body), nil)
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if st.Resources != want {
			t.Errorf("%s has %d resources, want %d", body, st.Resources, want)
		}
	}
}

func TestStatusTable(t *testing.T) {
	all := []Status{NotStarted, Running, Succeeded, Failed, Cancelled}
	allowed := map[[2]Status]bool{
		{NotStarted, Running}: true, {Running, Succeeded}: true, {Running, Failed}: true, {Running, Cancelled}: true,
	}
	for _, from := range all {
		for _, to := range all {
			if got := from.CanBecome(to); got != allowed[[2]Status{from, to}] {
				t.Errorf("%q can become %q: %v", from, to, got)
			}
		}
	}
}
