package database

import (
	"context"
	"slices"
	"sync"

	"workflowagent/internal/server/store/scope"
)

// lockTable holds the locks of this server's writes. A write waits here for the other writes of its
// server, without a connection to the database. Each lock is granted in the order of the requests, so
// that no write waits forever.
type lockTable struct {
	mu     sync.Mutex
	owners map[owner]*ownerLock
}

type owner struct {
	level scope.Level
	key   string
}

// ownerLock is the lock on one owner.
type ownerLock struct {
	shared    int // number of writes that share the lock
	exclusive bool
	waiting   []*waiter
}

type waiter struct {
	shared  bool
	granted chan struct{}
}

func newLockTable() *lockTable { return &lockTable{owners: map[owner]*ownerLock{}} }

// acquire waits for all locks, which must be in the order of [scope.Set.Locks].
func (t *lockTable) acquire(ctx context.Context, locks []scope.Lock) error {
	for i, lock := range locks {
		if err := t.wait(ctx, lock); err != nil {
			t.release(locks[:i])
			return err
		}
	}
	return nil
}

func (t *lockTable) wait(ctx context.Context, lock scope.Lock) error {
	t.mu.Lock()
	if t.grant(lock) {
		t.mu.Unlock()
		return nil
	}
	held := t.owners[owner{lock.Level, lock.Key}]
	w := &waiter{shared: lock.Shared, granted: make(chan struct{})}
	held.waiting = append(held.waiting, w)
	t.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(held.waiting, w); i >= 0 {
		held.waiting = slices.Delete(held.waiting, i, i+1)
		held.grantWaiting() // those behind w can share the lock
	} else {
		t.releaseOne(lock)
	}
	return ctx.Err()
}

// try acquires all locks if it need not wait for any, and reports whether it has.
func (t *lockTable) try(locks []scope.Lock) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, lock := range locks {
		if !t.grant(lock) {
			for _, granted := range locks[:i] {
				t.releaseOne(granted)
			}
			return false
		}
	}
	return true
}

func (t *lockTable) release(locks []scope.Lock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, lock := range slices.Backward(locks) {
		t.releaseOne(lock)
	}
}

// grant acquires a lock for which no other write waits.
func (t *lockTable) grant(lock scope.Lock) bool {
	key := owner{lock.Level, lock.Key}
	held := t.owners[key]
	if held == nil {
		held = &ownerLock{}
		t.owners[key] = held
	}
	return len(held.waiting) == 0 && held.acquire(lock.Shared)
}

func (t *lockTable) releaseOne(lock scope.Lock) {
	key := owner{lock.Level, lock.Key}
	held := t.owners[key]
	if lock.Shared {
		held.shared--
	} else {
		held.exclusive = false
	}
	held.grantWaiting()
	if held.shared == 0 && !held.exclusive {
		delete(t.owners, key)
	}
}

func (l *ownerLock) acquire(shared bool) bool {
	if l.exclusive || !shared && l.shared > 0 {
		return false
	}
	if shared {
		l.shared++
	} else {
		l.exclusive = true
	}
	return true
}

// grantWaiting grants the lock to the writes that have waited longest.
func (l *ownerLock) grantWaiting() {
	for len(l.waiting) > 0 && l.acquire(l.waiting[0].shared) {
		close(l.waiting[0].granted)
		l.waiting = slices.Delete(l.waiting, 0, 1)
	}
}
