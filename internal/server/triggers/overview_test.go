package triggers_test

import (
	"fmt"
	"slices"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/triggers"
	"workflowagent/internal/workflow"
)

// TestSchedulesOfOrg reads the schedules of all stacks page by page.
func TestSchedulesOfOrg(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSiteOn(t, db)
		ctx := t.Context()
		one, two := s.stack("one"), s.stack("two_2")
		var want []string
		for i := range 5 {
			st := []store.Stack{one, two}[i%2]
			c, err := s.triggers.Create(ctx, s.user, st, triggers.Spec{Kind: store.CustomSchedule, Cron: fmt.Sprintf("0 0 %d 1 *", i+1), Request: &workflow.Request{Operation: workflow.OperationPreview, Inherit: true}})
			s.must(err)
			want = append(want, c.ID)
			if i == 0 {
				s.must(s.triggers.Pause(ctx, st, c.ID, true))
			}
		}
		want = append(want[1:], want[0])
		read := func(f store.OrgScheduleFilter) (ids []string) {
			t.Helper()
			f.OrgID, f.Limit = s.org.ID, 2
			for range 5 {
				o, err := s.triggers.OfOrg(ctx, s.user, f)
				s.must(err)
				for _, c := range o.List {
					ids, f.After = append(ids, c.ID), c
				}
				if !o.More {
					return ids
				}
			}
			t.Fatal("the pages do not end")
			return nil
		}
		if got := read(store.OrgScheduleFilter{}); !slices.Equal(got, want) {
			t.Errorf("schedules %v, want %v", got, want)
		}
		if got := read(store.OrgScheduleFilter{Active: true, Kind: store.CustomSchedule}); !slices.Equal(got, want[:4]) {
			t.Errorf("active schedules %v, want %v", got, want[:4])
		}
		if got := read(store.OrgScheduleFilter{Contains: "J/TWO_"}); len(got) != 2 {
			t.Errorf("%d schedules of a stack, want 2", len(got))
		}
		if got := read(store.OrgScheduleFilter{Kind: store.DriftSchedule}); len(got) != 0 {
			t.Errorf("%d schedules of another kind", len(got))
		}
		s.must(s.deployments.PauseStack(ctx, s.user, two, true))
		o, err := s.triggers.OfOrg(ctx, s.user, store.OrgScheduleFilter{OrgID: s.org.ID, Limit: 9})
		s.must(err)
		if o.OrgPaused || !o.PausedStacks["proj/two_2"] || len(o.PausedStacks) != 1 || o.List[0].Project != "proj" {
			t.Errorf("the overview is %+v", o)
		}
	})
}
