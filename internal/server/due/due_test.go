package due

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
)

// rows is a database of due rows: what is done is no longer due.
type rows struct {
	mu     sync.Mutex
	due    []Work
	limit  int
	checks int
	wake   func(string)
	log    strings.Builder
}

func (r *rows) Subscribe(_ string, fn func(string)) func() {
	r.wake = fn
	return func() {}
}

func (r *rows) check(_ context.Context, full []string) ([]Work, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks++
	var found []Work
	for _, w := range r.due {
		hidden := slices.ContainsFunc(w.Owners, func(o string) bool { return slices.Contains(full, o) })
		if !hidden && (r.limit == 0 || len(found) < r.limit) {
			found = append(found, w)
		}
	}
	return found, nil
}

// add makes work due, which takes a time and is done unless it returns an error.
func (r *rows) add(key string, took time.Duration, err error, owners ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := fmt.Sprint(len(r.due), key)
	w := Work{Key: key, Owners: owners}
	w.Do = func(ctx context.Context) error {
		r.note("+" + key)
		time.Sleep(took)
		r.note("-" + key)
		if err == nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.due = slices.DeleteFunc(r.due, func(w Work) bool { return w.Owners[len(w.Owners)-1] == id })
		}
		return err
	}
	w.Owners = append(w.Owners, id) // unlimited: it identifies the row
	r.due = append(r.due, w)
}

func (r *rows) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.WriteString(text + " ")
}

// text returns what happened since it was called last.
func (r *rows) text() string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.log.Reset()
	return strings.TrimSpace(r.log.String())
}

func (r *rows) expect(t *testing.T, when, want string) {
	t.Helper()
	if got := r.text(); got != want {
		t.Errorf("%s: got %q, want %q", when, got, want)
	}
}

// start runs a loop on rows until the test ends, or stop is called.
func start(t *testing.T, r *rows, change func(*Loop)) (stop func()) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	l := &Loop{
		Log: logrus.NewEntry(log), Name: "rows", KeyName: "row", Notices: r, Topic: "rows", Every: 10 * time.Second,
		Most: 3, PerOwner: []int{2, 100}, Check: r.check,
	}
	change(l)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// TestLimits checks the order of a key's work, and the limits.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rows{}
		for _, key := range []string{"a", "b", "c"} {
			r.add(key, time.Second, nil, "busy")
		}
		r.add("a", time.Second, nil, "busy")
		r.add("d", 3*time.Second, nil, "quiet")
		r.add("e", time.Second, nil, "quiet")
		stop := start(t, r, func(*Loop) {})
		first := strings.Fields(r.text())
		if got := slices.Sorted(slices.Values(first)); !slices.Equal(got, []string{"+a", "+b", "+d"}) {
			t.Errorf("at first: %q, want two of an owner, and three in all", got)
		}
		time.Sleep(5 * time.Second)
		stop()
		log := append(first, strings.Fields(r.text())...)
		if len(log) != 12 || len(r.due) != 0 {
			t.Errorf("%q, and %d rows remain", log, len(r.due))
		}
		if order := slices.DeleteFunc(log, func(s string) bool { return s[1] != 'a' }); !slices.Equal(order, []string{"+a", "-a", "+a", "-a"}) {
			t.Errorf("the work of a key: %q", order)
		}
	})
}

// TestWake checks that the loop sees new rows at its interval, and at once if it is notified, and that it
// gathers notifications.
func TestWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rows{}
		start(t, r, func(l *Loop) { l.Gather = time.Second })
		synctest.Wait()
		r.add("a", 0, nil)
		r.expect(t, "without a notification", "")
		time.Sleep(13 * time.Second)
		r.expect(t, "after the interval", "+a -a")
		before := r.checks
		r.add("b", 0, nil)
		for range 10 {
			r.wake("")
			time.Sleep(50 * time.Millisecond)
		}
		r.expect(t, "while notifications are gathered", "")
		time.Sleep(time.Second)
		r.expect(t, "after notifications", "+b -b")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := r.checks - before; n > 4 {
			t.Errorf("%d checks", n)
		}
	})
}

// TestErrors checks that failed work is repeated after a pause, and skipped work at once, and that the rest of
// its key waits.
func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rows{}
		r.add("a", 0, errors.New("no"))
		r.add("a", 0, nil)
		stop := start(t, r, func(*Loop) {})
		r.expect(t, "a failure", "+a -a")
		time.Sleep(9 * time.Second)
		r.wake("")
		r.expect(t, "while the failed work waits", "")
		time.Sleep(2 * time.Second)
		r.expect(t, "after the interval", "+a -a")
		stop()

		r = &rows{}
		skips := 0
		r.due = []Work{{Key: "a", Do: func(context.Context) error {
			if skips++; skips < 3 {
				return ErrSkip
			}
			r.note("last")
			r.mu.Lock()
			defer r.mu.Unlock()
			r.due = nil
			return nil
		}}, {Key: "a", Do: func(context.Context) error { r.note("following"); return nil }}}
		start(t, r, func(*Loop) {})
		r.expect(t, "skipped twice", "last following")
	})
}

// TestBatch checks that the rows of an owner that is full do not hide those of others.
func TestBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rows{limit: 4}
		for n := range 20 {
			r.add(fmt.Sprint("busy", n), time.Minute, nil, "busy")
		}
		r.add("other", 0, nil, "quiet")
		start(t, r, func(l *Loop) { l.Batch = 4 })
		if log := r.text(); !strings.Contains(log, "-other") {
			t.Errorf("only %q", log)
		}
	})
}

// TestStop checks that the loop ends only after its work, and begins none.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rows{}
		r.add("a", time.Minute, nil)
		r.add("a", time.Minute, nil)
		stop := start(t, r, func(*Loop) {})
		r.expect(t, "before", "+a")
		stop()
		r.expect(t, "after", "-a")
	})
}
