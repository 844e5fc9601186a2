package deployments

import (
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/recent"
	"workflowagent/internal/server/store"
)

func TestWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := writers{recent.Map[writer]{Age: writerAge}}
		job := store.Job{ID: "j", Epoch: 2, Steps: make([]store.StepState, 3)}
		claim := identity.Principal{Kind: identity.KindRunner, JobID: "j", Epoch: 2}
		check := func(p identity.Principal, id string, want bool) {
			t.Helper()
			if n, ok := w.steps(p, id); ok != want || ok && n != 3 {
				t.Errorf("steps(%+v, %s) = %d, %t; want %t", p, id, n, ok, want)
			}
		}
		check(claim, "j", false)
		w.add(job, time.Now())
		check(claim, "j", true)
		old, other, process := claim, claim, claim
		old.Epoch, other.JobID, process.Kind = 1, "k", identity.KindJob
		for _, p := range []identity.Principal{old, other, process} {
			check(p, "j", false)
		}
		check(claim, "k", false)
		time.Sleep(writerAge)
		check(claim, "j", false)

		w.add(job, time.Now().Add(-writerAge/2))
		time.Sleep(writerAge / 2)
		check(claim, "j", false) // the read is older than the entry
		w.add(job, time.Now())
		w.Forget("j")
		check(claim, "j", false)
	})
}
