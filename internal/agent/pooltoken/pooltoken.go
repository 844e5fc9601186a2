// Package pooltoken has the token by which an agent shows what pool it is of:
// a fixed one ([Static]), or one for which the token of an OpenID Connect issuer
// is exchanged again and again ([OIDC]).
package pooltoken

import "context"

// Static is a token that somebody has configured. Nothing renews it.
type Static string

// Token returns the token.
func (s Static) Token(context.Context) (string, error) { return string(s), nil }

// Refused reports that there is no other token to be had.
func (s Static) Refused(string) bool { return false }

// Values returns the token.
func (s Static) Values() []string { return []string{string(s)} }
