package api_test

import (
	"fmt"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

func TestAnnotations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		path := f.stack("dev") + "/annotations"
		f.do("GET", path+"/team", nil).want(404, nil)
		f.do("PATCH", path+"/team?version=1", map[string]any{"a": 1}).want(409, nil)
		f.do("PATCH", path+"/team?version=0", map[string]any{"a": 1}).want(204, nil)
		f.do("PATCH", path+"/team?version=0", map[string]any{"a": 2}).want(409, nil).says("version 1, not 0")
		f.do("PATCH", path+"/team", map[string]any{"b": "<2>"}).want(204, nil)
		f.do("PATCH", path+"/team?source=bot", map[string]any{"c": 3}).want(204, nil)
		for query, want := range map[string]string{"": `{"b":"\u003c2\u003e"}`, "?version=2": `{"b":"\u003c2\u003e"}`, "?source=bot": `{"c":3}`} {
			if a := f.do("GET", path+"/team"+query, nil).want(200, nil); string(a.Body) != want {
				t.Errorf("annotation%s = %s, want %s", query, a.Body, want)
			}
		}
		if tag := f.do("GET", path+"/team", nil).want(200, nil).Header.Get("ETag"); tag != `"2"` {
			t.Errorf("ETag = %s", tag)
		}
		f.do("GET", path+"/team?version=1", nil).want(404, nil)
		f.do("GET", path+"/team?version=-1", nil).want(400, nil)
		f.do("PATCH", path+"/team", []byte(`[]`)).want(400, nil)
		f.do("PATCH", path+"/team", []byte(`null`)).want(400, nil)
		f.do("PATCH", path+"/"+strings.Repeat("k", 201), map[string]any{}).want(400, nil)
		f.do("PATCH", path+"/team", map[string]any{"a": strings.Repeat("x", 64<<10)}).want(413, nil)
		for i := range 98 {
			f.do("PATCH", fmt.Sprintf("%s/kind-%d", path, i), map[string]any{}).want(204, nil)
		}
		f.do("PATCH", path+"/one-more", map[string]any{}).want(400, nil).says("at most 100")
	})
}
