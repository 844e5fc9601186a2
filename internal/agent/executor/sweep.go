package executor

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Sweep removes the leftovers of owner's jobs. Leftovers are objects that ex lists, that are older
// than minAge, and for which keep returns false. minAge must exceed the time from the start of a
// Prepare until the journal entry is written, because keep cannot recognize the job earlier. Sweep
// returns the handles of the removed jobs. It continues after a failed removal.
func Sweep(ctx context.Context, ex Executor, owner string, now time.Time, minAge time.Duration, keep func(Handle) bool) ([]Handle, error) {
	all, err := ex.List(ctx, owner)
	if err != nil {
		return nil, fmt.Errorf("listing the leftovers of earlier jobs: %w", err)
	}
	var removed []Handle
	var errs []error
	for _, h := range all {
		if now.Sub(h.CreatedAt) < minAge || keep(h) {
			continue
		}
		if err := ex.Remove(ctx, h); err != nil {
			errs = append(errs, fmt.Errorf("removing leftovers of job %s (epoch %d): %w", h.JobID, h.Epoch, err))
			continue
		}
		removed = append(removed, h)
	}
	return removed, errors.Join(errs...)
}
