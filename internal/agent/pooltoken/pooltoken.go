// Package pooltoken provides the token that authenticates an agent to its pool: a fixed one
// ([Static]), or one exchanged for the token of an OpenID Connect issuer and renewed ([OIDC]).
package pooltoken

import "context"

// Static is a configured token. It is never renewed.
type Static string

// Token returns the token.
func (s Static) Token(context.Context) (string, error) { return string(s), nil }

// Refused returns false: no other token is available.
func (s Static) Refused(string) bool { return false }

// Values returns the token.
func (s Static) Values() []string { return []string{string(s)} }
