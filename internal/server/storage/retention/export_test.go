package retention

import "time"

// Pass makes the sweeper's server run for d longer.
func (s *Sweeper) Pass(d time.Duration) {
	up := s.clock.up
	s.clock.up = func() time.Duration { return up() + d }
}
