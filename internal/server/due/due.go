// Package due does work for which rows of the database are due: it checks for them at intervals and at
// notifications, and limits how much is done at the same time, in all and for each owner.
package due

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/retry"
)

// ErrSkip is returned by [Work.Do] to leave the following work with its key to the next check. It is not
// logged.
var ErrSkip = errors.New("the following work is skipped")

// Work is something that is due.
type Work struct {
	// Key identifies what the work changes. A loop does work with the same key one after the other, and a
	// key's work only once, however often it is returned while it is done.
	Key string
	// Owners share the loop with others: an organization, for example, and one of its integrations. They
	// have the limits in [Loop.PerOwner].
	Owners []string
	// Do does the work. If it is still due afterwards, Do is called again.
	Do func(ctx context.Context) error
}

// Loop does what is due. The same loop can run on several servers only if its work allows that: a loop
// knows nothing of the others.
type Loop struct {
	Log *logrus.Entry
	// Name is what is due, for the log, and KeyName the field for keys, for example "webhook".
	Name, KeyName string
	// Notices wakes the loop at notifications on the channel Topic. It is nil if there are none.
	Notices interface {
		Subscribe(channel string, fn func(payload string)) (cancel func())
	}
	Topic string
	// Every is the interval of checks for what was not notified, and Gather the minimum time between two.
	Every, Gather time.Duration
	// Most is the number of keys whose work is done at the same time, and PerOwner[n] the number of those
	// of one owner [Work.Owners][n].
	Most     int
	PerOwner []int
	// Check returns what is due, the most urgent first. It may leave out the work of the owners listed
	// in full, which have reached their limit. A check that is short enough can do its work itself instead.
	Check func(ctx context.Context, full []string) ([]Work, error)
	// Batch is the maximum number of rows that Check returns, or 0. After so many, there is another check
	// if more owners are full, so that their rows do not hide those of the others.
	Batch int
}

// Run does what is due until ctx is canceled, and returns when the work has ended that it has begun. Each
// check, and each work that ended, is followed by another check. An error is logged, and the work is
// repeated after about the interval of checks.
func (l *Loop) Run(ctx context.Context) error {
	wake := make(chan struct{}, 1)
	r := &run{Loop: l, keys: map[string]bool{}, owners: make([]map[string]int, len(l.PerOwner)), wake: func(string) {
		select {
		case wake <- struct{}{}:
		default:
		}
	}}
	for n := range r.owners {
		r.owners[n] = map[string]int{}
	}
	if l.Notices != nil {
		defer l.Notices.Subscribe(l.Topic, r.wake)()
	}
	defer r.group.Wait()
	for {
		if err := r.check(ctx); err != nil && ctx.Err() == nil {
			l.Log.WithError(err).Errorf("checking for due %s failed; retrying", l.Name)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry.Spread(l.Every)):
		case <-wake:
		}
		if l.Gather > 0 && retry.Sleep(ctx, l.Gather) != nil {
			return nil
		}
	}
}

type run struct {
	*Loop
	wake  func(string)
	group sync.WaitGroup

	mu     sync.Mutex
	keys   map[string]bool  // whose work is done
	owners []map[string]int // number of their keys, as in [Loop.PerOwner]
}

// check starts what is due, within the limits.
func (r *run) check(ctx context.Context) error {
	for r.free() {
		full := r.full()
		work, err := r.Check(ctx, full)
		if err != nil {
			return err
		}
		byKey := map[string][]Work{}
		for _, w := range work {
			byKey[w.Key] = append(byKey[w.Key], w)
		}
		for _, w := range work {
			// The first work of a key starts all of it, which can have ended when the others are reached.
			all := byKey[w.Key]
			delete(byKey, w.Key)
			if all != nil && r.acquire(w) {
				r.group.Go(func() { r.do(ctx, all) })
			}
		}
		if r.Batch == 0 || len(work) < r.Batch || len(r.full()) == len(full) {
			break
		}
	}
	return nil
}

func (r *run) free() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.keys) < r.Most
}

// full returns the owners that have as much work as they may.
func (r *run) full() (owners []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, most := range r.PerOwner {
		for owner, keys := range r.owners[n] {
			if keys >= most {
				owners = append(owners, owner)
			}
		}
	}
	return owners
}

// acquire reports whether a key's work may start, and counts it.
func (r *run) acquire(w Work) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys[w.Key] || len(r.keys) >= r.Most {
		return false
	}
	for n, owner := range w.Owners {
		if r.owners[n][owner] >= r.PerOwner[n] {
			return false
		}
	}
	r.keys[w.Key] = true
	for n, owner := range w.Owners {
		r.owners[n][owner]++
	}
	return true
}

func (r *run) release(w Work) {
	r.mu.Lock()
	delete(r.keys, w.Key)
	for n, owner := range w.Owners {
		if r.owners[n][owner]--; r.owners[n][owner] == 0 {
			delete(r.owners[n], owner)
		}
	}
	r.mu.Unlock()
	r.wake("")
}

// do does the work of a key.
func (r *run) do(ctx context.Context, work []Work) {
	defer r.release(work[0])
	for _, w := range work {
		if ctx.Err() != nil {
			return
		}
		err := w.Do(ctx)
		if err == nil {
			continue
		}
		if !errors.Is(err, ErrSkip) && ctx.Err() == nil {
			r.Log.WithError(err).WithField(r.KeyName, w.Key).Errorf("processing due %s failed; retrying", r.Name)
			// The work is still due: without a pause, it would be done again at once.
			_ = retry.Sleep(ctx, retry.Spread(r.Every))
		}
		return
	}
}
