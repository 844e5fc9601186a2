package backup

import "time"

// LowerSealWork makes the sealing and opening of keys cheap.
func LowerSealWork() { sealWork = 10 }

// LowerMaxLine lowers the limit of a row until the returned function is called.
func LowerMaxLine(limit int) (restore func()) {
	before := maxLine
	maxLine = limit
	return func() { maxLine = before }
}

// LowerStartDelay lets schedules begin at once until the returned function is called.
func LowerStartDelay() (restore func()) {
	before := startDelay
	startDelay = time.Millisecond
	return func() { startDelay = before }
}
