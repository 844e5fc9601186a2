package report_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/outbox"
	"workflowagent/internal/workflow"
)

func TestRow95FailuresOfTheForge(t *testing.T) {
	each(t, func(f *fixture) {
		f.forge.fail(fmt.Errorf("POST /statuses: %w", vcs.ErrRefused))
		stop := f.run()
		d := f.deploy("dev", first, workflow.OperationPreview, "pull-request")
		f.await("some attempts", func() bool { return f.forge.calls >= 3 })
		f.finish(d, workflow.StatusSucceeded, "") // nothing of this affects the deployment
		stop()
		if got := len(f.forge.times); got != 0 {
			f.t.Fatalf("%d calls succeeded", got)
		}
		// Another process has taken over, and the forge works again.
		f.forge.fail(nil)
		f.service = f.newService()
		f.run()
		f.await("the newest state", func() bool {
			return f.state(first, preview) == vcs.ReportSucceeded && f.state(first, outbox.Aggregate) == vcs.ReportSucceeded && strings.Contains(f.forge.comments[7], "succeeded")
		})
	})
}

func TestRow95RateLimit(t *testing.T) {
	one(t, func(f *fixture) {
		f.forge.fail(&vcs.RateLimited{Until: time.Now().Add(time.Hour)})
		f.run()
		f.deploy("dev", first, workflow.OperationPreview, "pull-request")
		f.await("an attempt", func() bool { return f.forge.calls == 1 })
		// All reports of the integration wait, not only the one that was refused.
		waiting := func() (least time.Duration) {
			f.write(func(tx *store.Tx) error {
				due, err := tx.DueVCSIntegrations(tx.Now().Add(50 * time.Minute))
				if least = time.Hour; len(due) > 0 {
					least = 0
				}
				return err
			})
			return least
		}
		for deadline := time.Now().Add(20 * time.Second); waiting() == 0; {
			if time.Now().After(deadline) {
				f.t.Fatal("a report is due before the forge accepts requests")
			}
		}
		if f.forge.calls != 1 {
			f.t.Errorf("%d calls", f.forge.calls)
		}
	})
}

// A subject that the forge does not have is given up, and delays no other report.
func TestMissingSubject(t *testing.T) {
	one(t, func(f *fixture) {
		f.forge.fail(vcs.ErrNotFound)
		f.run()
		f.decide(outbox.Decision{})
		f.quiet()
		if f.forge.calls != 5 {
			f.t.Errorf("%d attempts, want 5", f.forge.calls)
		}
	})
}

// A server that is killed after the forge accepted a comment, and before it recorded that, sends the
// comment again and creates no second one.
func TestKilledBetweenSendingAndRecording(t *testing.T) {
	each(t, func(f *fixture) {
		f.deploy("dev", first, workflow.OperationPreview, "pull-request")
		f.run()
		f.await("a comment", func() bool { return f.forge.created == 1 })
		f.quiet()
		f.write(func(tx *store.Tx) error { // what the database says in that case
			r := store.VCSReport{RepoID: "repo", Pull: 7}
			r, err := tx.VCSReportOf(r)
			if err != nil {
				return err
			}
			r.RemoteID, r.Sent, r.TryAt = "", r.Wanted-1, tx.Now()
			tx.Notify(outbox.Topic, r.IntegrationID)
			return tx.SaveVCSReport(r)
		})
		f.forge.mu.Lock()
		calls := f.forge.calls
		f.forge.mu.Unlock()
		f.await("the comment again", func() bool { return f.forge.calls > calls })
		f.quiet()
		if f.forge.created != 1 {
			f.t.Errorf("%d comments", f.forge.created)
		}
	})
}

// A change while a report is being sent is sent too.
func TestChangeWhileSending(t *testing.T) {
	each(t, func(f *fixture) {
		d := f.deploy("dev", first, workflow.OperationPreview, "pull-request")
		var once sync.Once
		f.forge.before = func() { once.Do(func() { f.finish(d, workflow.StatusSucceeded, "") }) }
		f.run()
		f.await("the newest state", func() bool {
			return f.state(first, preview) == vcs.ReportSucceeded && strings.Contains(f.forge.comments[7], "succeeded")
		})
	})
}

// Many changes cause few requests, with pauses between them.
func TestCoalescing(t *testing.T) {
	one(t, func(f *fixture) {
		d := f.deploy("dev", first, workflow.OperationPreview, "pull-request")
		for range 50 {
			f.finish(d, workflow.StatusRunning, "")
		}
		f.finish(d, workflow.StatusSucceeded, "")
		f.run()
		f.quiet()
		if f.forge.calls != 3 {
			f.t.Errorf("%d requests for a status, an aggregate and a comment", f.forge.calls)
		}
		for i, at := range slices.Backward(f.forge.times) {
			if i > 0 && at.Sub(f.forge.times[i-1]) < 9*time.Millisecond {
				f.t.Errorf("%s between two requests", at.Sub(f.forge.times[i-1]))
			}
		}
	})
}

func TestRemovedIntegration(t *testing.T) {
	one(t, func(f *fixture) {
		f.subject.IntegrationID = "int-2"
		f.decide(outbox.Decision{})
		f.run()
		f.quiet()
		if f.forge.calls != 0 {
			f.t.Error("a removed integration was used")
		}
	})
}

func TestSweep(t *testing.T) {
	each(t, func(f *fixture) {
		find := func(id string) (err error) {
			f.write(func(tx *store.Tx) error {
				_, err = tx.VCSReport(id)
				return nil
			})
			return err
		}
		for i, days := range []int{89, 91} {
			f.write(func(tx *store.Tx) error {
				return tx.InsertVCSReport(store.VCSReport{ID: fmt.Sprint(days), IntegrationID: "int-1", RepoID: "repo", Pull: int64(i), WantedAt: tx.Now().AddDate(0, 0, -days)})
			})
		}
		if err := f.service.Sweep(f.t.Context()); err != nil {
			f.t.Fatal(err)
		}
		if err := find("89"); err != nil {
			f.t.Errorf("a report of 89 days: %v", err)
		}
		if err := find("91"); !errors.Is(err, store.ErrNotFound) {
			f.t.Errorf("a report of 91 days: %v", err)
		}
	})
}
