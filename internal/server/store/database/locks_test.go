package database

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"workflowagent/internal/server/store/scope"
)

// TestLocks checks which writes wait for which, that locks are granted in the order of the requests, and
// that a write which stops waiting holds nothing.
func TestLocks(t *testing.T) {
	stack, other := scope.Stack("o", "a").Locks(), scope.Stack("o", "b").Locks()
	all := scope.Organization("o").Locks()
	synctest.Test(t, func(t *testing.T) {
		table := newLockTable()
		var order []string
		ends := map[string]context.CancelFunc{}
		// request acquires locks and holds them until the context ends. It waits with the context.
		request := func(name string, locks []scope.Lock) {
			ctx, cancel := context.WithCancel(t.Context())
			ends[name] = cancel
			go func() {
				if err := table.acquire(ctx, locks); err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Errorf("%s: %v", name, err)
					}
					return
				}
				order = append(order, name)
				<-ctx.Done()
				table.release(locks)
			}()
			synctest.Wait()
		}
		end := func(name string, want ...string) {
			t.Helper()
			ends[name]()
			synctest.Wait()
			if len(order) != len(want) {
				t.Fatalf("after the end of %s: granted %q, want %q", name, order, want)
			}
			for i := range want {
				if order[i] != want[i] {
					t.Fatalf("after the end of %s: granted %q, want %q", name, order, want)
				}
			}
			order = nil
		}
		request("stack", stack)
		request("other", other)
		request("same", stack) // waits for the stack
		request("all", all)    // waits for all three
		request("late", other) // must not overtake
		request("gone", all)
		end("gone", "stack", "other")
		end("stack", "same")
		end("other")
		end("same", "all")
		end("all", "late")
		request("all", all)
		request("shared", stack)
		end("all", "shared") // stops waiting, so the other can share the organization
		end("shared")
		if table.try(other) || !table.try(stack) || table.try(all) {
			t.Error("a try has the wrong result")
		}
		table.release(stack)
		end("late")
		if len(table.owners) != 0 {
			t.Errorf("%d locks are left", len(table.owners))
		}
	})
}
