package stacks_test

import (
	"strings"
	"testing"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks"
)

// TestLock checks that a held stack names its holder, the holder's origin and the state of the lease,
// and that the conflict of another update contains the same sentence.
func TestLock(t *testing.T) {
	l := newLeaseTest(t)
	if lock, err := l.service.Lock(t.Context(), l.user, l.stack); err != nil || lock != nil {
		t.Fatalf("the lock of a free stack is %+v, %v, want none", lock, err)
	}
	program := stacks.Program{Metadata: stacks.Metadata{Environment: map[string]string{
		"ci.system": "GitHub Actions", "ci.build.number": "17", "ci.build.url": "https://ci.example/17",
	}}}
	u, err := l.service.CreateUpdate(t.Context(), l.user, l.stack, stacks.KindUpdate, program)
	l.must(err)
	_, err = l.service.Start(t.Context(), u, nil, 0)
	l.must(err)
	for _, c := range []struct {
		pass  time.Duration
		state string
		words string
		next  time.Duration // until the state changes
	}{
		{0, stacks.LockAlive, "started by " + l.user.User.Login + " at ", 75 * time.Second},
		{100 * time.Second, stacks.LockSilent, "has been silent for 1 min 40 s", 200 * time.Second},
		{200*time.Second + time.Millisecond, stacks.LockLapsed, "has lapsed", 0},
	} {
		l.up(c.pass.Truncate(time.Second))
		l.clock.Pass(c.pass % time.Second)
		lock, err := l.service.Lock(t.Context(), l.user, l.stack)
		l.must(err)
		if lock == nil || lock.State != c.state {
			t.Fatalf("after %s more, the lock is %+v, want state %q", c.pass, lock, c.state)
		}
		stale, err := l.service.StaleLocks(t.Context(), l.user, l.stack.OrgID)
		l.must(err)
		if silent := c.state != stacks.LockAlive; silent != (len(stale) == 1) || silent && (stale[0].State != c.state || stale[0].Stack.ID != l.stack.ID) {
			t.Errorf("in the state %q, the stale locks are %+v", c.state, stale)
		}
		if left := lock.ChangesAt.Sub(l.clock.Now()); c.next == 0 && !lock.ChangesAt.IsZero() || c.next > 0 && left != c.next {
			t.Errorf("in the state %q, it changes at %s, in %s, want %s", c.state, lock.ChangesAt, left, c.next)
		}
		if lock.From != "GitHub Actions run 17" || lock.RunURL != "https://ci.example/17" {
			t.Errorf("the origin is %q, %q", lock.From, lock.RunURL)
		}
		text := lock.Text(l.clock.Now())
		if !strings.Contains(text, c.words) || !strings.Contains(text, "from GitHub Actions run 17") {
			t.Errorf("the sentence is %q, want %q in it", text, c.words)
		}
		if c.state == stacks.LockLapsed {
			continue
		}
		other, err := l.service.CreateUpdate(t.Context(), l.user, l.stack, stacks.KindUpdate, program)
		l.must(err)
		_, err = l.service.Start(t.Context(), other, nil, 0)
		if fault.KindOf(err) != fault.KindConflict || !strings.Contains(err.Error(), "started by "+l.user.User.Login) {
			t.Errorf("another update's error is %v, want a conflict that names the holder", err)
		}
	}
}
