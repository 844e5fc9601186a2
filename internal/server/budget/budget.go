// Package budget shares a fixed amount of memory among requests, for bodies, decoded forms and
// responses.
package budget

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"workflowagent/internal/server/fault"
)

// Small is the number of bytes that each request receives from a reserve. Heartbeats and polls
// therefore need not wait behind large requests.
const Small = 64 << 10

// ErrBusy reports that other requests hold the memory that a request needs.
var ErrBusy = fault.New(fault.KindUnavailable, "too many large requests at the same time; retry later")

// ErrTooLarge reports that a request needs more memory than the whole budget.
var ErrTooLarge = fault.New(fault.KindTooLarge, "the request needs more memory than the server has for all requests; split a large stack into smaller ones, or ask the server's operator to raise the memory limit")

// Budget is a fixed amount of memory. It rejects a request that needs more than the whole budget.
// Concurrent requests wait for memory for a bounded time, oldest first. After requests from a
// second organization have arrived, concurrent requests from one organization hold at most half of
// the budget. Concurrent readers hold at most half of it, so that those who read logs and states do
// not keep out running updates.
type Budget struct {
	total, reserve int64
	patience       time.Duration

	mu          sync.Mutex
	used        int64 // of total
	usedReserve int64
	shares      int64            // number of shares created
	holders     int              // number of shares that hold part of total
	owned       map[string]int64 // part of used, by owner
	seen        string           // the last organization that sent a request
	several     bool             // requests from several organizations have arrived
	waiters     []*waiter
}

// New returns a budget of total bytes, plus a reserve of total/8 bytes. patience bounds a request's
// wait for memory.
func New(total int64, patience time.Duration) *Budget {
	return &Budget{total: total, reserve: max(total/8, Small), patience: patience, owned: map[string]int64{}}
}

// Share is the part of a budget that one request holds. Only one goroutine may use it.
type Share struct {
	budget       *Budget
	owner        string // the request's user or organization; "" if not yet known
	reads        bool   // the request changes nothing
	age          int64  // creation order; lower is older
	large, small int64  // bytes held from total and from the reserve
}

// ForUser sets the user as the share's owner until an organization is known.
func (s *Share) ForUser(id string) { s.own("user "+id, "") }

// ForOrganization sets the organization as the share's owner.
func (s *Share) ForOrganization(name string) { s.own("organization "+name, name) }

func (s *Share) own(owner, organization string) {
	if s == nil {
		return
	}
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if organization != "" {
		b.several = b.several || b.seen != "" && b.seen != organization
		b.seen = organization
	}
	large := s.large
	b.add(s, -large)
	s.owner = owner
	b.add(s, large)
}

// readers stands for all requests that change nothing. The names of owners have a space.
const readers = "readers"

// groups returns the groups whose shares together hold a limited part of the budget.
func (s *Share) groups() []string {
	if s.reads {
		return []string{s.owner, readers}
	}
	return []string{s.owner}
}

func (b *Budget) add(s *Share, n int64) {
	s.large += n
	b.used += n
	for _, group := range s.groups() {
		if b.owned[group] += n; b.owned[group] == 0 {
			delete(b.owned, group)
		}
	}
}

// over reports whether n more bytes for s would raise the total of one of its groups above half of the
// budget.
func (b *Budget) over(s *Share, n int64) bool {
	return slices.ContainsFunc(s.groups(), func(group string) bool { return b.overIn(group, s, n) })
}

// overIn is [Budget.over] for one group. The limit applies only to groups of several shares, and to
// owners only if several organizations have sent requests.
func (b *Budget) overIn(group string, s *Share, n int64) bool {
	others := b.owned[group] - s.large
	limited := group == readers || b.several && group != ""
	return limited && n > 0 && others > 0 && others+s.large+n > b.total/2
}

// Share returns an empty share, which the caller must close.
func (b *Budget) Share() *Share {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shares++
	return &Share{budget: b, age: b.shares}
}

type waiter struct {
	share *Share
	n     int64
	done  chan error // capacity 1
}

func (b *Budget) split(s *Share, n int64) (large, small int64) {
	small = max(0, min(n, Small-s.small, b.reserve-b.usedReserve))
	return n - small, small
}

func (b *Budget) grant(s *Share, n int64) bool {
	large, small := b.split(s, n)
	if large > 0 && b.used+large > b.total || b.over(s, large) {
		return false
	}
	if s.large == 0 && large > 0 {
		b.holders++
	}
	b.add(s, large)
	s.small += small
	b.usedReserve += small
	return true
}

// first orders waiting shares. Shares that already hold memory come first, because they can finish
// soonest. Older shares come before younger ones.
func first(a, b *Share) int {
	if (a.large > 0) != (b.large > 0) {
		if a.large > 0 {
			return -1
		}
		return 1
	}
	return cmp.Compare(a.age, b.age)
}

// Take adds n bytes to a share. It waits while other requests hold the memory. A nil share has no
// limit.
func (s *Share) Take(ctx context.Context, n int64) error {
	if s == nil || n <= 0 {
		return nil
	}
	b := s.budget
	b.mu.Lock()
	large, _ := b.split(s, n)
	if s.large+large > b.total {
		b.mu.Unlock()
		return ErrTooLarge
	}
	ahead := slices.ContainsFunc(b.waiters, func(w *waiter) bool { return first(w.share, s) < 0 && !b.waitsForItsOwn(w) })
	if (large == 0 || !ahead) && b.grant(s, n) {
		b.mu.Unlock()
		return nil
	}
	w := &waiter{share: s, n: n, done: make(chan error, 1)}
	b.waiters = append(b.waiters, w)
	b.wake()
	b.mu.Unlock()
	return b.wait(ctx, w)
}

func (b *Budget) wait(ctx context.Context, w *waiter) error {
	timer := time.NewTimer(b.patience)
	defer timer.Stop()
	failed := ErrBusy
	select {
	case err := <-w.done:
		return err
	case <-timer.C:
	case <-ctx.Done():
		failed = fmt.Errorf("waiting for memory: %w", ctx.Err())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case err := <-w.done: // the wait was concurrently resolved
		return err
	default:
	}
	b.drop(w)
	b.wake()
	return failed
}

func (b *Budget) drop(w *waiter) {
	b.waiters = slices.DeleteFunc(b.waiters, func(other *waiter) bool { return other == w })
}

// waitsForItsOwn reports whether a share waits for other shares of one of its groups.
func (b *Budget) waitsForItsOwn(w *waiter) bool {
	large, _ := b.split(w.share, w.n)
	return b.over(w.share, large)
}

func (b *Budget) wake() {
	for granted := true; granted; {
		granted = false
		slices.SortFunc(b.waiters, func(x, y *waiter) int { return first(x.share, y.share) })
		for _, w := range b.waiters {
			if b.waitsForItsOwn(w) {
				continue
			}
			if granted = b.grant(w.share, w.n); granted {
				b.drop(w)
				w.done <- nil
			}
			break // later waiters must not overtake the first
		}
	}
	b.refuseStuck()
}

// refuseStuck resolves deadlocks. If all holders wait for each other, it rejects the youngest. If
// all holders of one group wait for each other, it rejects that group's youngest.
func (b *Budget) refuseStuck() {
	stuck := map[string]*waiter{} // youngest holder by group
	held := map[string]int64{}
	all, holding := (*waiter)(nil), 0
	for _, w := range b.waiters {
		if w.share.large == 0 {
			continue
		}
		holding++
		all = w
		for _, group := range w.share.groups() {
			held[group] += w.share.large
			stuck[group] = w
		}
	}
	if holding > 0 && holding == b.holders {
		b.refuse(all)
		return
	}
	for group, w := range stuck {
		large, _ := b.split(w.share, w.n)
		if held[group] == b.owned[group] && b.overIn(group, w.share, large) && slices.Contains(b.waiters, w) {
			b.refuse(w)
		}
	}
}

func (b *Budget) refuse(w *waiter) {
	b.drop(w)
	w.done <- ErrBusy
}

// Give returns n bytes of a share to the budget.
func (s *Share) Give(n int64) {
	if s == nil || n <= 0 {
		return
	}
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	large := min(n, s.large)
	if large > 0 && large == s.large {
		b.holders--
	}
	small := min(n-large, s.small)
	b.add(s, -large)
	s.small -= small
	b.usedReserve -= small
	b.wake()
}

// Close returns all memory of a share to the budget.
func (s *Share) Close() {
	if s != nil {
		s.Give(s.Held())
	}
}

// Held returns the number of bytes that a share holds.
func (s *Share) Held() int64 {
	if s == nil {
		return 0
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	return s.large + s.small
}

// Begin returns a context whose work takes its memory from the budget until done is called. A nil
// budget has no limit.
func (b *Budget) Begin(ctx context.Context) (_ context.Context, done func()) {
	if b == nil {
		return ctx, func() {}
	}
	s := b.Share()
	return With(ctx, s), s.Close
}

// BeginRead is like [Budget.Begin], for work that changes nothing.
func (b *Budget) BeginRead(ctx context.Context) (_ context.Context, done func()) {
	if b == nil {
		return ctx, func() {}
	}
	s := b.Share()
	s.reads = true
	return With(ctx, s), s.Close
}

type shareKey struct{}

// With returns a context that carries a share.
func With(ctx context.Context, s *Share) context.Context {
	return context.WithValue(ctx, shareKey{}, s)
}

// Of returns the share in a request's context, or nil.
func Of(ctx context.Context) *Share {
	s, _ := ctx.Value(shareKey{}).(*Share)
	return s
}
