// Package retry repeats calls with pauses that double up to a limit, with jitter. A server's
// Retry-After replaces a pause, and a canceled context interrupts it.
package retry

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Policy configures the pauses between attempts.
type Policy struct {
	First time.Duration // pause after the first failure; each further failure doubles it
	Max   time.Duration // limit of every pause, including a Retry-After
	Tries int           // maximum number of attempts of [Policy.Do]; 0 means no limit
}

// Pause returns the pause after err, given the number of earlier failures. The pause is random,
// between half and all of the doubled pause. So clients that failed together retry at different
// times, and a limited number of attempts still covers an outage. A Retry-After in err replaces the
// pause. It is limited to Max, but jitter never shortens it.
func (p Policy) Pause(failures int, err error) time.Duration {
	if asked := After(err); asked > 0 {
		return Spread(min(asked, p.Max))
	}
	d := p.First
	for ; failures > 0 && d < p.Max; failures-- {
		d *= 2
	}
	d = min(d, p.Max)
	return d/2 + rand.N(d/2+1)
}

// Wait waits for the duration of [Policy.Pause]. If ctx is done first, Wait returns the cause.
func (p Policy) Wait(ctx context.Context, failures int, err error) error {
	return Sleep(ctx, p.Pause(failures, err))
}

// Do repeats call until it succeeds, again returns false for its error, the attempts are exhausted,
// or ctx is done. It returns the last error from call.
func (p Policy) Do(ctx context.Context, again func(error) bool, call func() error) error {
	for failures := 0; ; failures++ {
		err := call()
		if err == nil || !again(err) || failures+1 == p.Tries || p.Wait(ctx, failures, err) != nil {
			return err
		}
	}
}

// Sleep waits for d. If ctx is done first, Sleep returns the cause.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// idle is the length of the pause after a piece of background work, as a multiple of the work's duration.
const idle = 19

// Paced works and then rests.
func Paced(ctx context.Context, work func() error) error {
	began := time.Now()
	if err := work(); err != nil {
		return err
	}
	return Rest(ctx, began)
}

// Rest sleeps 19 times as long as the piece of work that began at a time. Background work that
// consists of such pieces uses at most a twentieth of a core.
func Rest(ctx context.Context, began time.Time) error { return Sleep(ctx, idle*time.Since(began)) }

// Spread returns d plus a random part of up to a tenth of d, so that programs that start together
// do not act together.
func Spread(d time.Duration) time.Duration { return d + rand.N(d/10+1) }

// After returns the Retry-After of an error, or 0.
func After(err error) time.Duration {
	if asked, ok := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); ok {
		return asked.RetryAfter()
	}
	return 0
}
