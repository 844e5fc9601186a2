package stacks_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// TestStepsOf keeps for each step of the wanted resources the newest description that lacks nothing.
func TestStepsOf(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		u := s.start(stacks.KindUpdate, 1)
		var raw []json.RawMessage
		add := func(name, urn, op, rest string) {
			raw = append(raw, fmt.Appendf(nil, `{"sequence":%d,%q:{"metadata":{"urn":%q,"op":%q%s}}}`, len(raw), name, urn, op, rest))
		}
		for i := range 300 { // several spans
			add("resourcePreEvent", fmt.Sprintf("other%d", i), "create", "")
		}
		add("resourcePreEvent", "a", "create", `,"new":{"id":""}`)
		add("resourcePreEvent", "b", "delete-replaced", `,"old":{"id":"1"}`)
		add("resourcePreEvent", "b", "create-replacement", `,"new":{}`)
		add("resOutputsEvent", "a", "create", `,"new":{"id":"7"}`)
		add("resOpFailedEvent", "b", "create-replacement", "")
		s.must(s.service.RecordEvents(t.Context(), u, raw))
		got, err := s.service.StepsOf(t.Context(), s.user, s.stack, u, "a", "b", "absent")
		s.must(err)
		want := map[string][]string{
			"a":      {`{"urn":"a","op":"create","new":{"id":"7"}}`},
			"b":      {`{"urn":"b","op":"delete-replaced","old":{"id":"1"}}`, `{"urn":"b","op":"create-replacement","new":{}}`},
			"absent": nil,
		}
		for urn, steps := range want {
			var list []string
			for _, step := range got[urn] {
				list = append(list, string(step))
			}
			if !slices.Equal(list, steps) {
				t.Errorf("the steps of %s are %q, want %q", urn, list, steps)
			}
		}
		if len(got) != len(want) {
			t.Errorf("the result contains %d resources, want %d", len(got), len(want))
		}
	})
}
