// Package sleep waits, and ends early with a context.
package sleep

import (
	"context"
	"time"
)

// For waits for d. If ctx ends before, it returns why: [context.Cause].
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
