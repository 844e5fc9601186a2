package page

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"time"

	"workflowagent/internal/server/console/view"
)

const (
	undoCookie = "undo"
	// undoFor bounds the time until the page after a change is shown.
	undoFor = time.Minute
	// maxUndo is the size up to which browsers keep a cookie, without its name and attributes.
	maxUndo = 3800
)

// undone is what the cookie contains. The user is who made the change: another one can sign in meanwhile.
type undone struct {
	User string
	view.Done
}

// Undo lets the next page say what the form has changed, with a button that sends another form: names of values, each
// followed by its value. Only a cookie of this site offers that, because a link could name a change that was never made.
// A form that does not fit into a cookie is not offered.
func (a Answer) Undo(text, action string, values ...string) Answer {
	a.done = view.Done{Text: text, Undo: action, Values: values}
	return a
}

// Said lets the next page say what the form has done, which cannot be undone.
func (a Answer) Said(text string) Answer {
	a.done = view.Done{Text: text}
	return a
}

// keepDone sets the cookie with the change of an answer.
func (s *Site) keepDone(w http.ResponseWriter, v *Visit, d view.Done) {
	text, err := json.Marshal(undone{v.Who.User.ID, d})
	value := base64.RawURLEncoding.EncodeToString(text)
	if d.Text != "" && err == nil && len(value) <= maxUndo {
		http.SetCookie(w, s.Secret(undoCookie, value, time.Now().Add(undoFor)))
	}
}

// takeDone returns the change that the visitor has made just now, and removes the cookie.
func (s *Site) takeDone(w http.ResponseWriter, v *Visit) (d view.Done) {
	value := s.SecretOf(v, undoCookie)
	if value == "" || prefetch(v.R) {
		return d
	}
	http.SetCookie(w, s.Secret(undoCookie, "", time.Time{}))
	text, err := base64.RawURLEncoding.DecodeString(value)
	var u undone
	if err != nil || json.Unmarshal(text, &u) != nil || u.User != v.Who.User.ID || u.Undo != "" && SafeNext(u.Undo) != u.Undo {
		return d
	}
	return u.Done
}
