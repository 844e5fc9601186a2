// Package signin lets users sign in to the console and manages their sessions.
package signin

import "time"

// freshFor is the time after a sign-in in which a session may do what requires a recent sign-in.
const freshFor = 15 * time.Minute

// Session is a signed-in browser.
type Session struct {
	ID     string
	UserID string
	// Way is how the user signed in, such as "token" or "link".
	Way           string
	Created, Seen time.Time
	Address       string
	// Agent is the text with which the browser describes itself.
	Agent string
}

// Fresh reports whether the user signed in recently.
func (s Session) Fresh(now time.Time) bool { return now.Sub(s.Created) < freshFor }
