package stacks_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func (s *stackTest) compared(from, to int64) string {
	s.t.Helper()
	c, err := s.service.Compare(s.t.Context(), s.user, s.stack, from, to)
	s.must(err)
	tree, err := c.Tree(s.t.Context())
	s.must(err)
	var out []string
	for _, r := range tree.Rows {
		out = append(out, r.Name+" "+r.Op)
	}
	return strings.Join(out, ", ")
}

// TestCompareVersions compares states that are stored whole, as differences and as journals.
func TestCompareVersions(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		s.importState("a=1", "b=1", "c=1")
		u := s.start(stacks.KindUpdate, 1)
		s.record(u, replaces(1, 1, 1, "b=2"), creates(2, 2, "d=1"))
		_, err := s.service.Compare(t.Context(), s.user, s.stack, 1, 2)
		s.refused(fault.KindConflict, "while its update runs", err)
		s.finish(u)
		const want = "a same, c same, b update, d create"
		for _, when := range []string{"as a journal", "folded"} {
			if got := sorted(s.compared(1, 2)); got != sorted(want) {
				t.Errorf("%s: %s, want %s", when, got, want)
			}
			s.fold()
			s.service = s.replica(db)
		}
		if got := sorted(s.compared(2, 1)); got != sorted("a same, b update, c same, d delete") {
			t.Errorf("backwards: %s", got)
		}
		if got := s.compared(0, 1); got != "a create, b create, c create" {
			t.Errorf("from nothing: %s", got)
		}
		c, err := s.service.Compare(t.Context(), s.user, s.stack, 1, 2)
		s.must(err)
		pair, err := c.Resource(t.Context(), "urn:pulumi:dev::proj::a:b:C::b")
		s.must(err)
		if !strings.Contains(string(pair.Old), `"v":"1"`) || !strings.Contains(string(pair.New), `"v":"2"`) {
			t.Errorf("the resource is %s and %s", pair.Old, pair.New)
		}

		_, err = s.service.Compare(t.Context(), s.user, s.stack, 1, 9)
		s.refused(fault.KindNotFound, "has no version 9", err)
		_, err = s.service.Compare(t.Context(), identity.Principal{}, s.stack, 1, 2)
		if err == nil {
			t.Error("a stranger compares versions")
		}
		if list, err := s.service.Versions(t.Context(), s.user, s.stack); err != nil || len(list) != 2 || list[0].Version != 2 {
			t.Errorf("the versions are %v (%v)", list, err)
		}
		s.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			_, err := tx.Exec("UPDATE updates SET state_expired = 1 WHERE version = 1")
			return err
		}))
		_, err = s.service.Compare(t.Context(), s.user, s.stack, 1, 2)
		s.refused(fault.KindGone, "has expired", err)
		if list, err := s.service.Versions(t.Context(), s.user, s.stack); err != nil || len(list) != 1 {
			t.Errorf("the versions are %v (%v)", list, err)
		}
	})
}

// sorted returns the parts of a list in a fixed order, because journals append what they replace.
func sorted(text string) string {
	parts := strings.Split(text, ", ")
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// TestTouches finds the updates that changed a resource, up to its creation.
func TestTouches(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db)
		run := func(op, changes string) {
			t.Helper()
			u := s.start(stacks.KindUpdate, 1)
			events := []json.RawMessage{
				fmt.Appendf(nil, `{"sequence":0,"timestamp":1,"resourcePreEvent":{"metadata":{"urn":"a","op":%q}}}`, op),
				fmt.Appendf(nil, `{"sequence":1,"timestamp":2,"resOutputsEvent":{"metadata":{"urn":"a","op":%q}}}`, op),
				fmt.Appendf(nil, `{"sequence":2,"timestamp":2,"summaryEvent":{"resourceChanges":%s}}`, changes),
			}
			s.must(s.service.RecordEvents(t.Context(), u, events))
			s.finish(s.reload(u))
		}
		run("create", `{"create":1}`)
		run("same", `{"same":1}`)
		run("update", `{"update":1}`)
		run("update", `{"update":1}`)
		touches := func(until int64) string {
			t.Helper()
			found, err := s.service.Touches(t.Context(), s.user, s.stack, "a", until)
			s.must(err)
			text := fmt.Sprintf("from v%d, complete %t:", found.Oldest, found.Complete)
			for _, one := range found.List {
				text += fmt.Sprintf(" v%d %s", one.Version, one.Row.Op)
			}
			return text
		}
		if got := touches(4); got != "from v1, complete true: v4 update v3 update v1 create" {
			t.Errorf("all: %s", got)
		}
		if got := touches(2); got != "from v1, complete true: v1 create" {
			t.Errorf("up to version 2: %s", got)
		}
		s.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			_, err := tx.Exec("UPDATE updates SET events_expired = 1 WHERE version = 1")
			return err
		}))
		if got := touches(4); got != "from v3, complete false: v4 update v3 update" {
			t.Errorf("without the oldest events: %s", got)
		}
		if _, err := s.service.Touches(t.Context(), identity.Principal{}, s.stack, "a", 4); err == nil {
			t.Error("a stranger reads the history of a resource")
		}
	})
}
