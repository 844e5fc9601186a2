package page

import (
	"time"
	_ "time/tzdata" // for machines without the database of zones
)

// ZoneCookie is the name of the cookie with the time zone of the browser, which a script sets.
const ZoneCookie = "zone"

// maxZone bounds the name of a zone.
const maxZone = 64

// Zone returns the visitor's time zone: the one that the user has chosen, that of the browser, or UTC while it is unknown.
func (v *Visit) Zone() *time.Location {
	if zone := v.chosenZone(); zone != nil {
		return zone
	}
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

// chosenZone returns the time zone that the user has chosen, or nil.
func (v *Visit) chosenZone() *time.Location {
	if v.Who.User.Zone == "" {
		return nil
	}
	zone, err := time.LoadLocation(v.Who.User.Zone)
	if err != nil {
		return nil
	}
	return zone
}
