package stacks

import (
	"context"
	"time"
)

// SweepStatesOlder is SweepStates for states that are older than age.
func (s *Service) SweepStatesOlder(ctx context.Context, age time.Duration) (int, error) {
	return s.states.Sweep(ctx, age)
}

// FoldFinished folds the journals of all finished updates.
func (s *Service) FoldFinished(ctx context.Context) error {
	return s.states.FoldLeft(ctx, -time.Hour)
}
