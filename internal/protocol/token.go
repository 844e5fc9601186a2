package protocol

import (
	"context"
	"net/http"
	"net/url"

	"workflowagent/internal/termtext"
)

// StatusProbe is an agents-only path with the id of no deployment: calls change and claim nothing.
const StatusProbe = "/api/deployments/00000000-0000-0000-0000-000000000000/status"

// maxField limits what is taken from a header, in bytes.
const maxField = 2000

// TokenCheck is what a server reveals about a pool's token.
type TokenCheck struct {
	// Proven says that the server accepted the token and refuses calls without one.
	Proven bool
	// PoolID is the token's pool, ExternalURL its jobs' backend; "" if the server omits them.
	PoolID      string
	PoolName    string // of the same pool
	ExternalURL string
}

// CheckToken checks a pool's token without claiming work or showing up as an agent: it requests the
// status of a deployment that does not exist, with and without the token. The error is an
// [APIError] if the server refuses the token. It bypasses the breaker and does not retry.
func (c *Client) CheckToken(ctx context.Context, token string) (TokenCheck, error) {
	r := call{method: http.MethodGet, path: StatusProbe, token: token, limit: maxSmallBody}
	with, err := c.deliver(ctx, r)
	if err != nil && StatusCode(err) != http.StatusNotFound {
		return TokenCheck{}, err
	}
	check := TokenCheck{
		PoolID:      termtext.OneLine(with.header.Get(HeaderAgentPool), maxField),
		ExternalURL: termtext.OneLine(with.header.Get(HeaderExternalURL), maxField),
	}
	if name, err := url.PathUnescape(with.header.Get(HeaderPoolName)); err == nil {
		check.PoolName = termtext.OneLine(name, maxField)
	}
	r.token = ""
	_, err = c.deliver(ctx, r)
	switch StatusCode(err) {
	case http.StatusUnauthorized, http.StatusForbidden:
		check.Proven = true
		return check, nil
	case http.StatusNotFound:
		return check, nil
	}
	return check, err
}
