package api_test

import (
	"fmt"
	"testing"
)

// TestTagsAreBounded checks the limit on the tags of a stack. One write, which blocks other writes,
// replaces them all.
func TestTagsAreBounded(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	tags := map[string]string{}
	for i := range 500 {
		tags[fmt.Sprint("t", i)] = "x"
	}
	f.do("PATCH", path+"/tags", tags).want(204, nil)
	f.do("POST", path+"/tags", map[string]string{"name": "more", "value": "x"}).want(400, nil)
	f.do("PATCH", path+"/tags/t1", map[string]string{"value": "y"}).want(204, nil)
	tags["more"] = "x"
	f.do("PATCH", path+"/tags", tags).want(400, nil)
	f.do("POST", "/api/stacks/acme/proj", map[string]any{"stackName": "other", "tags": tags}).want(400, nil)
}
