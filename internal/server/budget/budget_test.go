package budget

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/server/fault"
)

const mib = 1 << 20

func take(t *testing.T, s *Share, n int64, want error) {
	t.Helper()
	if err := s.Take(t.Context(), n); !errors.Is(err, want) {
		t.Errorf("taking %d: %v, want %v", n, err, want)
	}
}

func TestTooLargeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(10*mib, time.Second)
		other, s := b.Share(), b.Share()
		take(t, other, 9*mib, nil)
		take(t, s, 11*mib, ErrTooLarge)
		take(t, s, 1*mib, nil)
		take(t, s, 10*mib, ErrTooLarge)
		if fault.KindOf(ErrTooLarge) != fault.KindTooLarge || fault.KindOf(ErrBusy) != fault.KindUnavailable {
			t.Error("the errors have the wrong kinds")
		}
		for _, remedy := range []string{"split", "operator"} { // for the user, and for the operator
			if !strings.Contains(ErrTooLarge.Error(), remedy) {
				t.Errorf("the error %q does not contain %q", ErrTooLarge, remedy)
			}
		}
	})
}

func TestOneAloneGetsAll(t *testing.T) {
	b := New(10*mib, time.Second)
	s := b.Share()
	for range 10 {
		take(t, s, mib, nil)
	}
	s.Close()
	take(t, b.Share(), 10*mib, nil)
}

func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(10*mib, 3*time.Second)
		holder, s := b.Share(), b.Share()
		take(t, holder, 8*mib, nil)
		began := time.Now()
		take(t, s, 5*mib, ErrBusy)
		if waited := time.Since(began); waited != 3*time.Second {
			t.Errorf("waited %v", waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Take(ctx, 5*mib); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a request that ended: %v", err)
		}
		holder.Close()
		take(t, s, 5*mib, nil)
	})
}

// TestSmallRequestsPass checks that heartbeats do not wait behind large requests.
func TestSmallRequestsPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(10*mib, time.Second)
		take(t, b.Share(), 10*mib+Small, nil)
		go func() { _ = b.Share().Take(t.Context(), 5*mib) }()
		synctest.Wait()
		began := time.Now()
		take(t, b.Share(), Small, nil)
		if time.Since(began) != 0 {
			t.Error("a small request waited")
		}
		time.Sleep(2 * time.Second) // the waiting request has ended
	})
}

// TestOldestGoesOn lets each of two requests hold memory that the other needs. The older request
// must continue; otherwise both would wait forever.
func TestOldestGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(10*mib, time.Hour)
		older, younger := b.Share(), b.Share()
		take(t, older, 6*mib, nil)
		take(t, younger, 3*mib, nil)
		got := make(chan error, 1)
		go func() { got <- older.Take(t.Context(), 4*mib) }()
		synctest.Wait()
		take(t, younger, 3*mib, ErrBusy)
		younger.Close()
		if err := <-got; err != nil {
			t.Errorf("the older request: %v", err)
		}
	})
}

func TestNewRequestsDoNotOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(10*mib, time.Hour)
		holder, large := b.Share(), b.Share()
		take(t, holder, 2*mib, nil)
		order := make(chan string, 2)
		go func() { _ = large.Take(t.Context(), 9*mib); order <- "large"; large.Close() }()
		synctest.Wait()
		go func() { s := b.Share(); _ = s.Take(t.Context(), 2*mib); order <- "new"; s.Close() }()
		synctest.Wait()
		holder.Close()
		if first, second := <-order, <-order; first != "large" || second != "new" {
			t.Errorf("%s came before %s", first, second)
		}
	})
}

// TestInvariants checks that random requests never hold more than the budget, and that they release
// all of it at the end.
func TestInvariants(t *testing.T) {
	b := New(8*mib, 20*time.Millisecond)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range 200 {
				s := owned(b, []string{"a", "b", "c"}[i%3])
				s.reads = random.IntN(2) == 0
				for range 4 {
					if s.Take(t.Context(), random.Int64N(4*mib)) == nil && random.IntN(2) == 0 {
						s.Give(random.Int64N(mib))
					}
					if held := allHeld(b); held > b.total+b.reserve {
						t.Errorf("%d bytes are held of %d", held, b.total+b.reserve)
					}
				}
				s.Close()
				if s.Held() != 0 {
					t.Error("a closed share holds something")
				}
			}
		})
	}
	all.Wait()
	if len(b.owned) != 0 || b.used != 0 || b.usedReserve != 0 || b.holders != 0 || len(b.waiters) != 0 {
		t.Errorf("still held: %d of the total, %d of the reserve, %d holders, %d waiters", b.used, b.usedReserve, b.holders, len(b.waiters))
	}
}

func allHeld(b *Budget) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used + b.usedReserve
}

func owned(b *Budget, organization string) *Share {
	s := b.Share()
	s.ForOrganization(organization)
	return s
}

// TestOrganizationsLeaveHalf checks that the requests of one organization hold at most half of the
// memory, and that its waiting requests do not block other organizations.
func TestOrganizationsLeaveHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(10*mib, time.Second)
		first, second := owned(b, "a"), owned(b, "a")
		take(t, first, 4*mib, nil)
		take(t, second, 4*mib, nil) // no other organization has sent a request yet
		second.Close()
		other := owned(b, "b")
		take(t, first, 5*mib, nil) // one request alone
		first.Give(5 * mib)
		for range 3 {
			go func() { _ = owned(b, "a").Take(t.Context(), 2*mib) }()
		}
		synctest.Wait()
		began := time.Now()
		take(t, other, 4*mib, nil)
		if waited := time.Since(began); waited != 0 {
			t.Errorf("another organization waited %v", waited)
		}
		take(t, owned(b, "a"), 2*mib, ErrBusy)
		synctest.Wait() // the waiting requests have timed out as well
		other.Close()
		first.Close()
		take(t, owned(b, "a"), 5*mib, nil)
	})
}

// TestOldestOfAnOrganizationContinues repeats TestOldestGoesOn within one organization's half.
func TestOldestOfAnOrganizationContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(12*mib, time.Hour)
		stranger := owned(b, "b")
		take(t, stranger, mib, nil)
		older, younger := owned(b, "a"), owned(b, "a")
		take(t, older, 3*mib, nil)
		take(t, younger, 2*mib, nil)
		got := make(chan error, 1)
		go func() { got <- older.Take(t.Context(), 3*mib) }()
		synctest.Wait()
		take(t, younger, 3*mib, ErrBusy)
		younger.Close()
		if err := <-got; err != nil {
			t.Errorf("the older request: %v", err)
		}
	})
}

// TestReadersLeaveHalf checks that requests that change nothing hold at most half of the memory, that
// those that wait do not block others, and that readers that wait for each other do not wait forever.
func TestReadersLeaveHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(10*mib, time.Hour)
		reader := func() *Share {
			ctx, done := b.BeginRead(t.Context())
			t.Cleanup(done)
			return Of(ctx)
		}
		first, second := reader(), reader()
		take(t, first, 9*mib, nil) // alone
		first.Give(6 * mib)
		take(t, second, 2*mib, nil)
		waited := make(chan error, 2)
		go func() { waited <- first.Take(t.Context(), mib) }()
		go func() { waited <- reader().Take(t.Context(), mib) }()
		synctest.Wait()
		began := time.Now()
		take(t, b.Share(), 5*mib, nil)
		if waited := time.Since(began); waited != 0 {
			t.Errorf("a request that changes something waited %v for readers", waited)
		}
		take(t, second, mib, ErrBusy) // both wait for each other
		second.Close()
		for range cap(waited) {
			if err := <-waited; err != nil {
				t.Error(err)
			}
		}
	})
}
