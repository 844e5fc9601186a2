package attempts

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/server/fault"
)

// TestGate floods a gate from one network. Only calls of this network with credentials that were not valid before
// may wait, and none may wait forever.
func TestGate(t *testing.T) {
	const flooded, other = "2001:db8::1", "192.0.2.1"
	synctest.Test(t, func(t *testing.T) {
		g := NewGate()
		valid := func() error { return nil }
		invalid := fault.New(fault.KindUnauthenticated, "no")
		wrong := func() error { return invalid }
		check := func(address, key string, check func() error) (waited time.Duration, err error) {
			began := time.Now()
			err = g.Check(t.Context(), address, key, check)
			return time.Since(began), err
		}
		if _, err := check(flooded, "known", valid); err != nil {
			t.Fatal(err)
		}
		for range gateFailures {
			if waited, err := check("2001:db8::2", "guess", wrong); !errors.Is(err, invalid) || waited != 0 {
				t.Fatalf("%v after %v", err, waited)
			}
		}
		var flood sync.WaitGroup
		for range gateSlots {
			flood.Go(func() {
				_, _ = check(flooded, "guess", func() error { time.Sleep(time.Minute); return invalid })
			})
		}
		synctest.Wait()
		for name, c := range map[string]struct{ address, key string }{
			"a credential that was valid": {flooded, "known"}, "another network": {other, "another"},
		} {
			if waited, err := check(c.address, c.key, valid); err != nil || waited != 0 {
				t.Errorf("%s: %v after %v", name, err, waited)
			}
		}
		if waited, err := check(flooded, "new", valid); fault.KindOf(err) != fault.KindUnavailable || waited != gateWait {
			t.Errorf("a new credential: %v after %v", err, waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Check(ctx, flooded, "new", valid); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a client that went away: %v", err)
		}
		flood.Wait()
		for range gateFailures {
			_, _ = check(flooded, "guess", wrong)
		}
		if waited, err := check(flooded, "new", valid); err != nil || waited != 0 {
			t.Errorf("a new credential after the flood: %v after %v", err, waited)
		}
		if _, err := check(other, "known", wrong); !errors.Is(err, invalid) {
			t.Error(err)
		}
		if _, known := g.valid.Get("known"); known {
			t.Error("a revoked credential still passes without waiting")
		}
	})
}
