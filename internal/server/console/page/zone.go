package page

import (
	"time"
	_ "time/tzdata" // for machines without the database of zones
)

// ZoneCookie is the name of the cookie with the time zone of the browser, which a script sets.
const ZoneCookie = "zone"

// maxZone bounds the name of a zone.
const maxZone = 64

// Zone returns the visitor's time zone: that of the browser, or UTC while it is unknown.
func (v *Visit) Zone() *time.Location {
	c, err := v.R.Cookie(ZoneCookie)
	if err != nil || c.Value == "" || c.Value == "Local" || len(c.Value) > maxZone {
		return time.UTC
	}
	zone, err := time.LoadLocation(c.Value)
	if err != nil {
		return time.UTC
	}
	return zone
}
