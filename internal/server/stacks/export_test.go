package stacks

import (
	"context"
	"time"
)

// SweepStatesOlder is SweepStates for states of another age.
func (s *Service) SweepStatesOlder(ctx context.Context, age time.Duration) (int, error) {
	return s.sweepStates(ctx, age)
}
