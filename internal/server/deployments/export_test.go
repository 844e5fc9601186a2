package deployments

import "context"

// Sweep notes that the server is up and goes through all timers once, for tests
// that let time pass themselves.
func (s *Service) Sweep(ctx context.Context) error {
	if err := s.beat(ctx); err != nil {
		return err
	}
	return s.sweep(ctx)
}
