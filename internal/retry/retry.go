// Package retry is the policy of repeated calls: pauses that double up to a limit, with jitter; a
// server's Retry-After replaces them, and the context ends them.
package retry

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Policy configures the pauses between tries.
type Policy struct {
	First time.Duration // pause after the first failure; each further failure doubles it
	Max   time.Duration // limit of every pause, Retry-After included
	Tries int           // limit of the tries of [Policy.Do]; 0 means no limit
}

// Pause returns the pause after err, given the number of earlier failures. It is random between
// half and all of the doubled pause, so that clients that failed together return apart and limited
// tries still cover an outage. A Retry-After in err replaces it, up to Max and never shortened.
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

// Wait waits for [Policy.Pause]. If ctx ends first, it returns the cause.
func (p Policy) Wait(ctx context.Context, failures int, err error) error {
	return Sleep(ctx, p.Pause(failures, err))
}

// Do repeats call until success, an error that again rejects, the last try, or the end of ctx. It
// returns the last error of call.
func (p Policy) Do(ctx context.Context, again func(error) bool, call func() error) error {
	for failures := 0; ; failures++ {
		err := call()
		if err == nil || !again(err) || failures+1 == p.Tries || p.Wait(ctx, failures, err) != nil {
			return err
		}
	}
}

// Sleep waits for d. If ctx ends first, it returns the cause.
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

// Spread adds up to a tenth to an interval, so that programs started together drift apart.
func Spread(d time.Duration) time.Duration { return d + rand.N(d/10+1) }

// After returns the Retry-After in an error, or 0.
func After(err error) time.Duration {
	if asked, ok := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); ok {
		return asked.RetryAfter()
	}
	return 0
}
