package triggers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/triggers"
)

// TestReplicas lets two servers fire the same schedules at once, as when one of them loses the lock
// of its exclusive work. Each schedule must fire exactly once.
func TestReplicas(t *testing.T) {
	const schedules = 40
	first, second := storetest.PostgresPair(t)
	s := newSiteOn(t, first)
	ids := s.backlog(schedules)
	var wg sync.WaitGroup
	for _, server := range []*triggers.Service{s.triggers, s.replica(second)} {
		wg.Go(func() {
			if err := server.Sweep(t.Context()); err != nil {
				t.Errorf("Sweep: %v", err)
			}
		})
	}
	wg.Wait()
	s.must(s.triggers.Sweep(t.Context()))
	for st, id := range ids {
		s.expect(st, id, succeeded)
		if n := s.deployed(st); n != 1 {
			t.Errorf("stack %s has %d deployments", st.Name, n)
		}
	}
}

// TestManyDue fires many schedules at once while another client writes. WORKFLOW_SCHEDULES is the
// number of schedules.
func TestManyDue(t *testing.T) {
	n := 100
	if text := os.Getenv("WORKFLOW_SCHEDULES"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSiteOn(t, db)
		ids := s.backlog(n)
		ctx, cancel := context.WithCancel(t.Context())
		var waits []time.Duration
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				if err := db.Write(ctx, scope.Server(), func(tx *store.Tx) error { return tx.SetDefaultOrg(s.user.User.ID, "acme") }); err != nil && ctx.Err() == nil {
					t.Errorf("Write: %v", err)
				}
				waits = append(waits, time.Since(began))
			}
		})
		began := time.Now()
		err := s.triggers.Sweep(t.Context())
		took := time.Since(began)
		cancel()
		wg.Wait()
		s.must(err)
		slices.Sort(waits)
		p95 := waits[len(waits)*95/100]
		t.Logf("%d schedules fired in %s (%.0f per second); another writer's p95 %s, maximum %s, %d writes",
			n, took.Round(time.Millisecond), float64(n)/took.Seconds(), p95, waits[len(waits)-1], len(waits))
		if p95 > 10*time.Second {
			t.Errorf("another writer waited %s", p95)
		}
		due, err := store.Read(t.Context(), db, func(tx *store.Tx) ([]store.ScheduleRef, error) { return tx.DueSchedules(tx.Now(), 1) })
		s.must(err)
		if len(due) > 0 {
			t.Error("some schedules are still due")
		}
		for st := range ids {
			if got := s.deployed(st); got != 1 {
				t.Errorf("stack %s has %d deployments", st.Name, got)
			}
		}
	})
}

// backlog creates n stacks with one schedule each, which are due now, and on the next leap day. All
// are copies of the first, because many requests take longer than the test.
func (s *site) backlog(n int) map[store.Stack]string {
	s.t.Helper()
	first := s.stack("dev0")
	model := s.schedule(first, s.cron(first, "0 0 29 2 *"))
	ids := map[store.Stack]string{}
	for begin := 0; begin < n; begin += 500 {
		s.must(s.db.Write(s.t.Context(), scope.Server(), func(tx *store.Tx) error {
			settings, err := tx.DeploymentSettings(first.ID)
			if err != nil {
				return err
			}
			c := model
			c.NextAt = tx.Now().Add(-time.Second)
			c.TryAt = c.NextAt
			for i := begin; i < min(begin+500, n); i++ {
				st := first
				if i == 0 {
					if err := tx.UpdateSchedule(c); err != nil {
						return err
					}
				} else {
					st.ID, st.Name = fmt.Sprint("stack", i), fmt.Sprint("dev", i)
					settings.StackID = st.ID
					c.ID, c.StackID = fmt.Sprint("schedule", i), st.ID
					if err := errors.Join(tx.InsertStack(st), tx.SaveDeploymentSettings(settings), tx.InsertSchedule(c)); err != nil {
						return err
					}
				}
				ids[st] = c.ID
			}
			return nil
		}))
	}
	return ids
}
