// Package fault defines the kinds of errors that the control plane reports to its clients. Domain
// packages return them without knowing HTTP; package api alone maps kinds to status codes.
package fault

import (
	"errors"
	"fmt"
)

// Kind classifies an error from the client's point of view.
type Kind string

// The kinds.
const (
	KindInvalid         Kind = "invalid"         // the request itself is wrong
	KindUnauthenticated Kind = "unauthenticated" // no valid credential
	KindForbidden       Kind = "forbidden"       // a valid credential without the permission
	KindNotFound        Kind = "not found"
	KindConflict        Kind = "conflict"    // the object is in another state
	KindGone            Kind = "gone"        // superseded or finished
	KindTooLarge        Kind = "too large"   // over a limit
	KindUnavailable     Kind = "unavailable" // temporary; retry later
)

// Error is an error whose message may be shown to the client unchanged.
type Error struct {
	Kind    Kind
	Message string
	Cause   error // for the server's log only; may be nil
}

// Error returns the message that the client sees.
func (e *Error) Error() string { return e.Message }

// Unwrap returns Cause.
func (e *Error) Unwrap() error { return e.Cause }

// New returns an error of a kind.
func New(k Kind, format string, args ...any) error {
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...)}
}

// Wrap returns an error of a kind whose cause appears only in the server's log.
func Wrap(k Kind, cause error, format string, args ...any) error {
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...), Cause: cause}
}

// Invalid returns an error of an invalid request; the message says what to change.
func Invalid(format string, args ...any) error { return New(KindInvalid, format, args...) }

// Forbidden returns an error of a caller without permission.
func Forbidden(format string, args ...any) error { return New(KindForbidden, format, args...) }

// NotFound returns an error that names what is missing.
func NotFound(format string, args ...any) error { return New(KindNotFound, format, args...) }

// Conflict returns an error that names the conflicting state.
func Conflict(format string, args ...any) error { return New(KindConflict, format, args...) }

// KindOf returns the kind of the first [Error] in err's chain, "" for none.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}
