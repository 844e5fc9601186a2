package view

import (
	"strconv"
	"time"
)

// presetExpiry is the number of days after which a new token expires if a form names none.
const presetExpiry = 90

// Expiries are the times after which forms let new tokens expire, in days; 0 is never.
var Expiries = []Option{{Value: "30", Text: "30 days"}, {Value: "90", Text: "90 days"}, {Value: "365", Text: "1 year"}, {Value: "0", Text: "never"}}

// Expiry returns the time at which a token expires that is created now with a choice of [Expiries].
// The zero time means never.
func Expiry(days string, now time.Time) time.Time {
	n, err := strconv.Atoi(days)
	if err != nil || n < 0 || n > 3650 {
		n = presetExpiry
	}
	if n == 0 {
		return time.Time{}
	}
	return now.AddDate(0, 0, n)
}
