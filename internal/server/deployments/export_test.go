package deployments

import "context"

// Sweep goes through all timers once, for tests that let time pass themselves.
func (s *Service) Sweep(ctx context.Context) error { return s.sweep(ctx) }
