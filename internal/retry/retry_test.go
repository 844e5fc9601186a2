package retry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/retry"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := retry.Sleep(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
		why := errors.New("the machine is shutting down")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		began = time.Now()
		if err := retry.Sleep(ctx, time.Minute); !errors.Is(err, why) || time.Since(began) != time.Second {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
	})
}

type asked time.Duration

func (asked) Error() string               { return "busy" }
func (a asked) RetryAfter() time.Duration { return time.Duration(a) }

func TestPause(t *testing.T) {
	policy := retry.Policy{First: time.Second, Max: time.Minute}
	for _, tt := range []struct {
		name        string
		failures    int
		err         error
		least, most time.Duration
	}{
		{"first", 0, nil, time.Second / 2, time.Second},
		{"doubled", 3, errors.New("away"), 4 * time.Second, 8 * time.Second},
		{"limited", 7, nil, 30 * time.Second, time.Minute},
		{"limited after many failures", 1 << 40, nil, 30 * time.Second, time.Minute},
		{"Retry-After", 9, fmt.Errorf("calling: %w", asked(5*time.Second)), 5 * time.Second, 5500 * time.Millisecond},
		{"Retry-After above the limit", 0, asked(24 * time.Hour), time.Minute, 66 * time.Second},
		{"Retry-After of zero", 0, asked(0), time.Second / 2, time.Second},
	} {
		seen := map[time.Duration]bool{}
		for range 100 {
			pause := policy.Pause(tt.failures, tt.err)
			if pause < tt.least || pause > tt.most {
				t.Fatalf("%s: got %s, want %s to %s", tt.name, pause, tt.least, tt.most)
			}
			seen[pause] = true
		}
		if len(seen) < 50 {
			t.Errorf("%s: %d different pauses of 100", tt.name, len(seen))
		}
	}
}

func TestDo(t *testing.T) {
	away, refused := errors.New("away"), errors.New("refused")
	again := func(err error) bool { return errors.Is(err, away) }
	for _, tt := range []struct {
		name    string
		answers []error
		calls   int
		want    error
	}{
		{"success", []error{nil}, 1, nil},
		{"success later", []error{away, away, nil}, 3, nil},
		{"refusal", []error{away, refused, nil}, 2, refused},
		{"last try", []error{away, away, away, away, nil}, 4, away},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			err := retry.Policy{First: time.Second, Max: time.Minute, Tries: 4}.Do(t.Context(), again, func() error {
				calls++
				return tt.answers[calls-1]
			})
			if !errors.Is(err, tt.want) || calls != tt.calls {
				t.Errorf("%s: got %v after %d calls, want %v after %d", tt.name, err, calls, tt.want, tt.calls)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		if err := (retry.Policy{First: time.Second, Max: time.Minute}).Do(ctx, again, func() error { return away }); !errors.Is(err, away) || time.Since(began) != 10*time.Second {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
	})
}
