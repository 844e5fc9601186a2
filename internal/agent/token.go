package agent

import "context"

// TokenSource has the token of the agent's pool. Several goroutines use it.
type TokenSource interface {
	// Token returns a token that is good as far as is known. It may wait for one,
	// and fails only when ctx ends.
	Token(ctx context.Context) (string, error)
	// Refused tells that the server answered 401 to the token, and reports whether
	// another one is to be had: then [TokenSource.Token] waits for that.
	Refused(token string) bool
	// Values returns every token that is, or may still be, good, and those they were
	// got for: none of them may show in a log.
	Values() []string
}
