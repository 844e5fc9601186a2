package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
)

// Error is a failure that a forge reports.
type Error struct {
	Status  int
	Message string // of the forge, or ""
	cause   error  // [vcs.ErrNotFound], [vcs.ErrGone], [vcs.ErrRefused], [vcs.ErrRejected] or nil
}

func (e *Error) Error() string {
	text := fmt.Sprintf("the forge responded with status %d", e.Status)
	if e.cause != nil {
		text = fmt.Sprintf("%v (status %d)", e.cause, e.Status)
	}
	if e.Message != "" {
		text += ": " + strconv.Quote(e.Message)
	}
	return text
}

func (e *Error) Unwrap() error { return e.cause }

// IsStatus reports whether a forge responded with a status.
func IsStatus(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status
}

// fallbackLimit is the pause of a forge that does not say when it accepts requests again.
const fallbackLimit = time.Minute

// StatusError returns the error that a response's status stands for, or nil for a success.
func StatusError(a outbound.Answer) error {
	switch {
	case a.Status >= 200 && a.Status < 300:
		return nil
	case a.Status == 429, a.Status == 403 && (first(a, "Retry-After") != "" || first(a, "X-Ratelimit-Remaining") == "0"):
		return &vcs.RateLimited{Until: limitedUntil(a, time.Now())}
	}
	e := &Error{Status: a.Status, Message: message(a.Body)}
	switch a.Status {
	case 401, 403:
		e.cause = vcs.ErrRefused
	case 404:
		e.cause = vcs.ErrNotFound
	case 410, 451: // deleted, or blocked by law
		e.cause = vcs.ErrGone
	case 400, 405, 406, 411, 413, 414, 415, 422, 501:
		e.cause = vcs.ErrRejected
	}
	return e
}

func first(a outbound.Answer, name string) string { return strings.Join(a.Header[name], "") }

// limitedUntil returns the time at which a forge accepts requests again, at most an hour from now.
func limitedUntil(a outbound.Answer, now time.Time) time.Time {
	until := now.Add(fallbackLimit)
	if seconds, err := strconv.ParseInt(first(a, "Retry-After"), 10, 32); err == nil && seconds >= 0 {
		until = now.Add(time.Duration(seconds) * time.Second)
	} else {
		for _, name := range []string{"X-Ratelimit-Reset", "Ratelimit-Reset"} {
			if unix, err := strconv.ParseInt(first(a, name), 10, 64); err == nil && unix > now.Unix() {
				until = time.Unix(min(unix, now.Add(time.Hour).Unix()), 0)
			}
		}
	}
	if latest := now.Add(time.Hour); until.After(latest) {
		return latest
	}
	return until
}

// message returns a forge's own explanation.
func message(body []byte) string {
	var doc struct {
		Message json.RawMessage `json:"message"`
		Error   json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &doc) != nil {
		return ""
	}
	for _, raw := range []json.RawMessage{doc.Message, doc.Error} {
		var text string
		var object struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(raw, &text) != nil && json.Unmarshal(raw, &object) == nil {
			if text = object.Message; text == "" {
				text = string(raw) // messages by field
			}
		}
		if text = strings.TrimSpace(text); text != "" {
			return Trim(text, 200)
		}
	}
	return ""
}
