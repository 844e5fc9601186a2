package deployments_test

import (
	"fmt"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// TestGroupWakesPolls ends the running job of a group on one server while a claim on the other is stopped before
// each of its statements. The held poll for which that claim finds no job must get the next one of the group.
func TestGroupWakesPolls(t *testing.T) {
	dsn := storetest.PostgresDSN(t)
	var stop stopper
	first := newPlant(t, openPatient(t, dsn, stop.before), deployments.Options{})
	second := &plant{t: t, db: openPatient(t, dsn, nil), org: first.org, pool: first.pool, agent: first.agent, user: first.user}
	second.build(deployments.Options{})
	group, free := [2]store.Stack{first.grouped("a", "g"), first.grouped("b", "g")}, first.stack("free")
	stops := 0
	for stopped := true; stopped && !t.Failed(); stops++ {
		first.deploy(group[0])
		holder := second.poll("holder")
		second.must(second.heartbeat(holder, protocol.PhaseStarting))
		first.deploy(group[1])

		claims := make(chan *deployments.Claim, 2)
		for i := range 2 {
			go func() {
				answer, err := first.service.Poll(t.Context(), first.request(fmt.Sprint("agent", i), time.Minute).From(first.agent))
				if err != nil {
					t.Error("polling:", err)
				}
				claims <- answer.Claim
			}()
		}
		first.eventually("the polls", func() bool { return first.service.HeldPolls() == 2 })
		reached, resume := stop.set(stops + 1)
		second.deploy(free)
		var got []*deployments.Claim
		select {
		case <-reached:
		case c := <-claims:
			stopped, got = false, append(got, c)
			stop.set(0)
		}
		second.must(second.result(holder, workflow.StatusSucceeded))
		close(resume)
		for len(got) < 2 {
			got = append(got, <-claims)
		}
		for _, c := range got {
			if c == nil {
				t.Errorf("stopped before statement %d, a poll gets no job although the group is free", stops+1)
				continue
			}
			second.must(second.result(c, workflow.StatusFailed))
		}
	}
	if stops < 5 {
		t.Errorf("the claim has %d statements", stops)
	}
}
