// Package pooltoken provides the token that authenticates an agent to its pool. [Static] is a fixed
// token. [OIDC] exchanges the token of an OpenID Connect issuer for a pool token and renews it.
package pooltoken

import "context"

// Static is a configured token. It is never renewed.
type Static string

// Token returns the token.
func (s Static) Token(context.Context) (string, error) { return string(s), nil }

// Refused returns false, because no other token is available.
func (s Static) Refused(string) bool { return false }

// Values returns the token.
func (s Static) Values() []string { return []string{string(s)} }
