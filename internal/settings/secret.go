package settings

import (
	"crypto/subtle"
	"fmt"
	"io"
)

const redacted = "[REDACTED]"

// Secret is a string that is never printed: all verbs of fmt, and the encoders for JSON, text and
// YAML, print [REDACTED] instead. The zero value is the empty secret, which prints as the empty
// string.
//
// The value is behind a pointer because fmt does not call methods on unexported struct fields, and
// would print a Secret in such a field in plain text.
type Secret struct {
	value *string
}

// NewSecret returns a secret with the given value.
func NewSecret(value string) Secret {
	if value == "" {
		return Secret{}
	}
	return Secret{value: &value}
}

// Reveal returns the secret value. Call it only to send the value over the wire or to a process,
// never to format a message.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsZero reports whether the secret is empty.
func (s Secret) IsZero() bool { return s.value == nil }

// Equal reports whether two secrets are equal, in constant time.
func (s Secret) Equal(other Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(other.Reveal())) == 1
}

// String returns [REDACTED], or "" for the empty secret.
func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return redacted
}

// GoString returns what String returns.
func (s Secret) GoString() string { return s.String() }

// Format prints what String returns, for every verb including %x and %q.
func (s Secret) Format(state fmt.State, _ rune) {
	io.WriteString(state, s.String())
}

// MarshalText returns what String returns, for YAML and text encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON returns what String returns, quoted.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + s.String() + `"`), nil }
