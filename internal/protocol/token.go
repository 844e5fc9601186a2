package protocol

import (
	"context"
	"net/http"
	"net/url"

	"workflowagent/internal/termtext"
)

// StatusProbe is a path that only agents may ask, and the id in it that of no deployment: asking
// it changes nothing and claims nothing, on any server.
const StatusProbe = "/api/deployments/00000000-0000-0000-0000-000000000000/status"

// maxField bounds what is taken from a header, in bytes.
const maxField = 2000

// TokenCheck is what a server lets know about a pool's token.
type TokenCheck struct {
	// Proven says that the server let the token in and lets nobody in without one. A server that
	// makes no difference says nothing about the token.
	Proven bool
	// PoolID is the pool of the token, and ExternalURL the one that jobs get. Both are empty on
	// servers other than ours.
	PoolID      string
	PoolName    string // of the same pool
	ExternalURL string
}

// CheckToken finds out whether the server takes the token of a pool, without claiming work or
// being seen as an agent: it asks for the status of a deployment that does not exist, with the
// token and without. The error is an [APIError] if the server refuses the token. It asks once,
// whatever the breaker says.
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
