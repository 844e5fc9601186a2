package deployments

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"workflowagent/internal/server/pools"
	"workflowagent/internal/workflow"
)

// TestLinesOfTypes tests that agents which accept only evaluations do not stand before those for deployments.
func TestLinesOfTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queued := false
		d := newDispatcher(func(_ context.Context, polls []*Poll) []outcome {
			out := slices.Repeat([]outcome{{err: errNothing}}, len(polls))
			for i, r := range polls {
				if queued && r.Accepts(workflow.TypeDeployment) {
					out[i], queued = outcome{claim: &Claim{}}, false
				}
			}
			return out
		})
		join := func(name string, types ...workflow.Type) *waiter {
			return d.join(&Poll{Agent: pools.Sighting{AgentID: name, PoolID: "p"}, PollID: name, Types: types})
		}
		var dedicated []*waiter
		for i := range 2 * maxBatch {
			dedicated = append(dedicated, join(fmt.Sprint(i), workflow.TypePolicyEvaluation))
		}
		w := join("deployments", workflow.TypeDeployment)
		synctest.Wait()
		queued = true
		d.note("p")
		synctest.Wait()
		select {
		case o := <-w.got:
			if o.claim == nil {
				t.Errorf("the poll ended: %v", o.err)
			}
		default:
			t.Error("the agent for deployments got nothing")
		}
		for _, w := range dedicated {
			d.leave(w)
		}
		d.close()
	})
}
