package web

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// Error is an error with its own status code, for conditions that exist only in HTTP.
type Error struct {
	Status     int
	Message    string        // without the words of the status
	RetryAfter time.Duration // 0: no Retry-After header
}

// Error returns Message.
func (e *Error) Error() string { return e.Message }

type errorBody struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Reason  string `json:"reason,omitempty"` // for programs
}

// outcomeUnknown is the reason of [fault.KindOutcomeUnknown].
const outcomeUnknown = "outcome_unknown"

var statusOfKind = map[fault.Kind]int{
	fault.KindInvalid:         http.StatusBadRequest,
	fault.KindUnauthenticated: http.StatusUnauthorized,
	fault.KindForbidden:       http.StatusForbidden,
	fault.KindNotFound:        http.StatusNotFound,
	fault.KindConflict:        http.StatusConflict,
	fault.KindGone:            http.StatusGone,
	fault.KindTooLarge:        http.StatusRequestEntityTooLarge,
	fault.KindUnavailable:     http.StatusServiceUnavailable,
	fault.KindDamaged:         http.StatusInternalServerError,
	// Clients repeat requests with the status 503.
	fault.KindOutcomeUnknown: http.StatusInternalServerError,
}

// statusClientClosed is the conventional status of a request whose client disconnected.
const statusClientClosed = 499

// Classify returns the status for an error, and a message without the words of the status. The message
// is "" if these words are all there is to say.
func Classify(err error) (status int, message string) {
	if he, ok := errors.AsType[*Error](err); ok {
		return he.Status, he.Message
	}
	if fe, ok := errors.AsType[*fault.Error](err); ok {
		return statusOfKind[fe.Kind], fe.Message
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge, "the body is larger than " + words.Bytes(tooLarge.Limit)
	case errors.Is(err, store.ErrNotFound):
		return http.StatusNotFound, ""
	case errors.Is(err, store.ErrConflict):
		return http.StatusConflict, "another request changed or created this at the same time"
	case errors.Is(err, store.ErrInvalid):
		return http.StatusBadRequest, "a value of the request cannot be stored: it contains a NUL, is not UTF-8, or is too large"
	case store.IsFull(err):
		return http.StatusServiceUnavailable, "the server's disk is full; its operator must free space, then try again"
	case errors.Is(err, context.Canceled):
		return statusClientClosed, "the client closed the request"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrBusy):
		return http.StatusServiceUnavailable, "the server is busy or stopping; retry later"
	default:
		return http.StatusInternalServerError, "the request failed; the details are in the server's log under this request id"
	}
}

// Message returns the message for clients of the API, on which some of them depend: the words of the
// status, and what [Classify] returned.
func Message(status int, message string) string {
	words := http.StatusText(status)
	if words == "" || message == "" {
		return words + message
	}
	return words + ": " + message
}

// WriteDiagnostics responds with the diagnostics of an environment's definition, if err contains some. Otherwise, it
// returns err.
func WriteDiagnostics(w http.ResponseWriter, r *http.Request, err error) error {
	d, ok := errors.AsType[*environments.DiagnosticsError](err)
	if !ok {
		return err
	}
	NoteError(r, errors.New("the definition of the environment has errors")) // theirs can repeat parts of it
	return WriteJSON(w, r, http.StatusBadRequest, struct {
		errorBody
		Diagnostics wire.Diagnostics `json:"diagnostics"`
	}{errorBody{Code: http.StatusBadRequest, Message: Message(http.StatusBadRequest, d.Error())}, d.Diagnostics})
}

// WriteError responds to a client of the API with an error, and records it for the access log.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	WriteErrorText(w, r, err, Message(Classify(err)))
}

// WriteErrorText is [WriteError] with another message.
func WriteErrorText(w http.ResponseWriter, r *http.Request, err error, message string) {
	status, _ := Classify(err)
	NoteError(r, err)
	w.Header().Del("Cache-Control") // of the intended response
	var he *Error
	if errors.As(err, &he) && he.RetryAfter > 0 {
		RetryAfter(w, he.RetryAfter)
	} else if status == http.StatusServiceUnavailable {
		RetryAfter(w, 2*time.Second)
	}
	// The memory of an error response is not charged, because its request might already hold the
	// whole budget.
	answer := errorBody{Code: status, Message: message}
	if fault.KindOf(err) == fault.KindOutcomeUnknown {
		answer.Reason = outcomeUnknown
	}
	body, err := encodeJSON(answer)
	if err == nil {
		err = WriteRaw(w, r, status, body)
	}
	if err != nil {
		NoteError(r, err)
	}
}

// RetryAfter sets the Retry-After header to d, rounded up to seconds.
func RetryAfter(w http.ResponseWriter, d time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(d.Seconds())))))
}
