package policies

import (
	"fmt"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// TestNamesOfVersions tests that no version gets the name of another one, where a version without a tag is named by its
// number, and that a group which names a number gets the version with this number.
func TestNamesOfVersions(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newService(t, db)
		publish := func(tag string) string {
			t.Helper()
			made, err := s.Publish(t.Context(), identity.Principal{}, acme, Draft{Name: "aws", Tag: tag})
			if err != nil {
				return string(fault.KindOf(err))
			}
			id, query := parts(t, made.Upload)
			must.OK(t, s.Upload(t.Context(), id, query, strings.NewReader("archive"), -1))
			must.OK(t, s.Confirm(t.Context(), acme, "aws", label(made.Version)))
			return fmt.Sprint(made.Version.Number, " ", made.Version.Tag)
		}
		for _, each := range []struct{ tag, want string }{
			{"", "1 "},
			{"1.1.0", "2 1.1.0"},
			{"1", string(fault.KindConflict)}, // the name of the first version
			{"2", "3 2"},                      // that version has another name
			{"5", "4 5"},
			{"6", "5 6"},
			{"", "7 "}, // the names 5 and 6 are used
			{"7", string(fault.KindConflict)},
			{"8", "8 8"},
			{"", "9 "},
		} {
			if got := publish(each.tag); got != each.want {
				t.Errorf("publishing %q makes %q, want %q", each.tag, got, each.want)
			}
		}
		for _, each := range []struct {
			ref  PackRef
			want string
		}{
			{PackRef{Number: 2}, "1.1.0"},
			{PackRef{Tag: "2"}, "2"},
			{PackRef{Number: 3, Tag: "2"}, "2"},
			{PackRef{Tag: "7", Number: 7}, "7"},
			{PackRef{Number: 6}, "no version 6"},
		} {
			each.ref.Name = "aws"
			_, err := s.ChangeGroup(t.Context(), acme, DefaultGroup, []Change{{Packs: []PackRef{each.ref}}})
			got := fmt.Sprint(err)
			if err == nil {
				list := must.Get(s.packsOf(t.Context(), store.Stack{ID: "s", OrgID: acme.ID}, Preventative))(t)
				got = label(store.PolicyPackVersion{Tag: list[0].Tag, Number: list[0].Number})
			}
			if !strings.Contains(got, each.want) {
				t.Errorf("a group that names %+v gets %q, want %q", each.ref, got, each.want)
			}
		}
	})
}
