package backup

import "time"

// LowerSealWork makes the sealing and opening of keys cheap.
func LowerSealWork() { sealWork = 10 }

// LowerStartDelay lets schedules begin at once until the returned function is called.
func LowerStartDelay() (restore func()) {
	before := startDelay
	startDelay = time.Millisecond
	return func() { startDelay = before }
}
