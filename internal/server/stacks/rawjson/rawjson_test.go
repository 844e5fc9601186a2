package rawjson

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

func checkAgainstDecoder(t *testing.T, data []byte) {
	t.Helper()
	var obj map[string]json.RawMessage
	if json.Unmarshal(data, &obj) == nil && obj != nil {
		got := map[string]string{}
		for k, v := range Members(data) {
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
		for v := range Elements(data) {
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
			// encoding/json repairs keys that contain invalid UTF-8, but rawjson keeps them.
			for range Members(data) {
			}
			for range Elements(data) {
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
		for text := range Texts([]byte(doc)) {
			got = append(got, string(text))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", doc, got, want)
		}
	}
}
