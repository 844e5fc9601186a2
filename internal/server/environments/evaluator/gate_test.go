package evaluator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/server/fault"
)

// TestGate has an organization use all that it may, and a caller in several organizations, while others enter.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(8)
		enter := func(organization, caller string) func() {
			t.Helper()
			leave, err := g.enter(t.Context(), Owner{organization, caller})
			if err != nil {
				t.Fatal(err)
			}
			return leave
		}
		first, second := enter("a", "ann"), enter("b", "ann")
		leaves := []func(){second, enter("a", "bob"), enter("a", "bob"), enter("a", "carl")}
		for _, owner := range []Owner{{"c", "ann"}, {"a", "dora"}} {
			began := time.Now()
			if _, err := g.enter(t.Context(), owner); fault.KindOf(err) != fault.KindUnavailable || time.Since(began) != queueTimeout {
				t.Errorf("one more request of %v: %v after %s", owner, err, time.Since(began))
			}
		}
		leaves = append(leaves, enter("b", "eve"), enter("c", "finn"), enter("d", "gus"))
		queue, end := context.WithCancel(t.Context())
		for range mostWaiting {
			go g.enter(queue, Owner{"c", "ann"})
		}
		synctest.Wait()
		if g.starved() {
			t.Error("a request that waits for another one of the same caller counts as starved")
		}
		began := time.Now()
		if _, err := g.enter(t.Context(), Owner{"c", "ann"}); fault.KindOf(err) != fault.KindUnavailable || time.Since(began) != 0 {
			t.Errorf("a request behind a long queue: %v after %s", err, time.Since(began))
		}
		end()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		go g.enter(ctx, Owner{"e", "hal"})
		synctest.Wait()
		if !g.starved() {
			t.Error("a request that waits only for a place does not count as starved")
		}
		cancel()
		synctest.Wait()
		if _, err := g.enter(ctx, Owner{"e", "hal"}); err == nil {
			t.Error("a ninth request began")
		}
		time.AfterFunc(time.Second, first)
		began = time.Now()
		leaves = append(leaves, enter("a", "ann"))
		if time.Since(began) != time.Second {
			t.Errorf("the next request waited %s", time.Since(began))
		}
		for _, leave := range leaves {
			leave()
		}
		if g.inside != 0 || len(g.of)+len(g.by) != 0 || len(g.waiting) != 0 {
			t.Errorf("the gate keeps %+v", g)
		}
	})
}
