package states

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/server/store"
)

// TestQueueServesOrganizationsInTurn checks that an organization with many journals delays the
// others by one fold each.
func TestQueueServesOrganizationsInTurn(t *testing.T) {
	q := queue{waiting: map[string][]string{}}
	for i := range foldQueue + 10 {
		q.add(store.OwnedState{OrgID: "busy", Key: fmt.Sprint("busy", i)})
	}
	for _, key := range []string{"quiet0", "quiet1", "quiet0"} {
		q.add(store.OwnedState{OrgID: "quiet", Key: key})
	}
	var order []string
	for !q.empty() {
		order = append(order, q.next())
	}
	if got, want := strings.Join(order[:5], " "), "busy0 quiet0 busy1 quiet1 busy2"; got != want {
		t.Errorf("the order is %s, want %s", got, want)
	}
	if want := foldQueue + 2; len(order) != want {
		t.Errorf("%d journals were queued, want %d", len(order), want)
	}
	q.add(store.OwnedState{OrgID: "quiet", Key: "quiet0"})
	if key := q.next(); key != "quiet0" || !q.empty() {
		t.Errorf("a journal that returns to an empty queue: %q", key)
	}
}

func TestFailuresAreSkippedForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := failures{"a": time.Now()}
		time.Sleep(foldRetry - time.Nanosecond)
		f.tidy()
		if !f.recent("a") || f.recent("b") {
			t.Error("before the hour is over, want that only a is skipped")
		}
		time.Sleep(time.Nanosecond)
		f.tidy()
		if len(f) != 0 {
			t.Errorf("after the hour, %v are skipped", f)
		}
	})
}
