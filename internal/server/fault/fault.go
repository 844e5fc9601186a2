// Package fault defines the kinds of errors that the control plane reports to its clients. Domain
// packages return them and do not depend on HTTP: a message is a sentence without the words of a status,
// which only package web of the API adds.
package fault

import (
	"errors"
	"fmt"
	"strings"
)

// Kind classifies an error for clients.
type Kind string

// The error kinds.
const (
	KindInvalid         Kind = "invalid"         // invalid request
	KindUnauthenticated Kind = "unauthenticated" // no valid credential
	KindForbidden       Kind = "forbidden"       // a valid credential without the permission
	KindNotFound        Kind = "not found"
	KindConflict        Kind = "conflict"    // the object's state does not permit the request
	KindGone            Kind = "gone"        // the object was superseded or has finished
	KindTooLarge        Kind = "too large"   // the request exceeds a limit
	KindUnavailable     Kind = "unavailable" // temporary; retry later
	KindDamaged         Kind = "damaged"     // stored data is missing or damaged
	// KindOutcomeUnknown means that the database did not say whether it has stored the change. The change
	// may have taken effect, or may still do so: nothing may be undone or removed because of the error.
	KindOutcomeUnknown Kind = "outcome unknown"
)

// Error is an error whose message may be shown to the client unchanged.
type Error struct {
	Kind    Kind
	Message string
	Cause   error // logged by the server, not shown to clients; can be nil
	// Named reports that the message begins with a name, such as a login, whose letters must not be changed.
	Named bool
}

// Error returns the message for the client.
func (e *Error) Error() string { return e.Message }

// Unwrap returns Cause.
func (e *Error) Unwrap() error { return e.Cause }

// New returns an error of kind k.
func New(k Kind, format string, args ...any) error {
	return Wrap(k, nil, format, args...)
}

// Wrap returns an error of kind k whose cause appears only in the server's log.
func Wrap(k Kind, cause error, format string, args ...any) error {
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...), Cause: cause, Named: strings.HasPrefix(format, "%s") && format != "%s"}
}

// Invalid returns an error for an invalid request; the message states the necessary change.
func Invalid(format string, args ...any) error { return New(KindInvalid, format, args...) }

// Forbidden returns an error for a caller without permission.
func Forbidden(format string, args ...any) error { return New(KindForbidden, format, args...) }

// NotFound returns an error that names the missing object.
func NotFound(format string, args ...any) error { return New(KindNotFound, format, args...) }

// Conflict returns an error that names the conflicting state.
func Conflict(format string, args ...any) error { return New(KindConflict, format, args...) }

// While returns an error that says during what err happened, or nil if err is nil.
func While(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// During returns err unchanged if its message is for the client, and otherwise an error that says during what it
// happened.
func During(err error, what string) error {
	if KindOf(err) != "" {
		return err
	}
	return While(err, "%s", what)
}

// Refuses reports whether an error is about the request itself, so that another attempt would fail too.
func Refuses(err error) bool {
	switch KindOf(err) {
	case "", KindUnavailable, KindDamaged, KindOutcomeUnknown:
		return false
	default:
		return true
	}
}

// KindOf returns the kind of the first [Error] in err's chain, or "" if the chain contains none.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}
