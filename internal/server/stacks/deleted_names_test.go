package stacks_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
)

// create makes a new stack the test's one.
func (s *stackTest) create(org store.Organization, name string) {
	s.t.Helper()
	st, err := s.service.Create(s.t.Context(), s.user, stacks.NewStack{Org: org, Project: "proj", Name: name})
	s.must(err)
	s.stack = st
}

// TestNamesOfDeletedStacks renames and transfers stacks to and from the paths of deleted ones.
func TestNamesOfDeletedStacks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db).keeping(time.Hour)
		s.joinOther()
		ids := identity.New(db, storetest.Log())
		acme, err := ids.Organization(t.Context(), s.user, "acme")
		s.must(err)
		other, err := ids.Organization(t.Context(), s.user, "other")
		s.must(err)
		s.importState("a")
		first := s.delete()

		// Another stack gets the name of the deleted one by a rename.
		s.create(acme, "prod")
		_, err = s.service.Rename(t.Context(), s.user, s.stack, "dev", "")
		s.must(err)
		_, err = s.restore(first, "")
		s.refused(fault.KindConflict, "stack 'acme/proj/dev' already exists", err)

		// It moves to another organization, and is deleted and restored there.
		s.stack = s.reloaded()
		s.must(s.service.Transfer(t.Context(), s.user, s.stack, other))
		s.stack = s.reloaded()
		second := s.delete()
		if second.OrgName != "other" || second.Name != "dev" {
			t.Errorf("the stack that was renamed and transferred is listed as %s/%s", second.OrgName, second.Name)
		}
		_, err = s.service.Restore(t.Context(), s.user, acme.ID, second.StackID, "")
		s.refused(fault.KindNotFound, "no deleted stack", err)
		st, err := s.restore(second, "")
		s.must(err)
		if st.Ref() != "other/proj/dev" {
			t.Errorf("restored as %s", st.Ref())
		}
		back, err := s.restore(first, "")
		s.must(err)
		if back.Ref() != "acme/proj/dev" || back.ID != first.StackID {
			t.Errorf("restored %s as %s", back.ID, back.Ref())
		}

		// A stack cannot be transferred to a name that a restored one has taken again.
		s.stack = st
		s.stack = s.reloaded()
		s.refused(fault.KindConflict, "already exists", s.service.Transfer(t.Context(), s.user, s.stack, acme))
	})
}

// TestWritesToDeletedStacks writes to a stack that was deleted after the caller has found it.
func TestWritesToDeletedStacks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newStackTest(t, db).keeping(time.Hour)
		s.joinOther()
		other, err := identity.New(db, storetest.Log()).Organization(t.Context(), s.user, "other")
		s.must(err)
		s.importState("a")
		s.stack = s.reloaded()
		state, err := states.Parse([]byte(`{"version":3,"deployment":{"resources":[`+resource("b")+`]}}`), nil)
		s.must(err)
		s.delete()
		ctx := t.Context()
		contents := func() string {
			if db.Shared() {
				return "" // storetest reads only SQLite
			}
			return fmt.Sprint(storetest.Contents(t, db))
		}
		before := contents()
		for name, write := range map[string]func() error{
			"import": func() error { _, err := s.service.Import(ctx, s.user, s.stack, state); return err },
			"rename": func() error { _, err := s.service.Rename(ctx, s.user, s.stack, "new", ""); return err },
			"update": func() error {
				_, err := s.service.CreateUpdate(ctx, s.user, s.stack, stacks.KindUpdate, stacks.Program{})
				return err
			},
			"preview": func() error {
				_, err := s.service.CreateUpdate(ctx, s.user, s.stack, stacks.KindPreview, stacks.Program{})
				return err
			},
			"config": func() error { return s.service.SetConfig(ctx, s.stack, `{"a":"b"}`) },
			"annotation": func() error {
				return s.service.Annotate(ctx, s.user, s.stack, store.Annotation{StackID: s.stack.ID, Kind: "k", Document: "{}"}, 0)
			},
			"transfer": func() error { return s.service.Transfer(ctx, s.user, s.stack, other) },
			"delete":   func() error { return s.service.Delete(ctx, s.user, s.stack, true) },
			"export":   func() error { _, err := s.service.Export(ctx, s.stack.ID); return err },
		} {
			if err := write(); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if after := contents(); after != before {
			t.Errorf("the database changed from\n%s\nto\n%s", before, after)
		}
	})
}
