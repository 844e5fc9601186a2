package outbound

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"golang.org/x/oauth2"

	"workflowagent/internal/protocol"
)

// Context returns a context in which the libraries for OAuth and OpenID Connect make their requests
// with this client: under the rules of [Client.Get], but with any method and any status. Their errors
// never contain the response, unless the libraries add it.
func (c *Client) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, oauth2.HTTPClient, c.library(maxTime))
}

// slowTime bounds a request of [Client.Slow].
const slowTime = 30 * time.Second

// Slow returns a client for a library whose peer can take longer than others, such as an authority that
// issues certificates. Its requests follow the rules of [Client.Get], but with any method and any status.
func (c *Client) Slow() *http.Client { return c.library(slowTime) }

func (c *Client) library(limit time.Duration) *http.Client {
	return &http.Client{
		Transport: guarded{c, limit},
		Timeout:   limit,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// guarded makes requests under the rules of [Client.Get].
type guarded struct {
	c     *Client
	limit time.Duration // for the messages
}

// RoundTrip implements [http.RoundTripper].
func (g guarded) RoundTrip(req *http.Request) (*http.Response, error) {
	u, err := parse(req.URL.String())
	if err != nil {
		return nil, err
	}
	reach := g.c.reach(req.Context(), u)
	hidden, err := reach.resolve(req.Context(), u)
	if err != nil {
		return nil, g.c.explain(u, err, hidden, g.limit)
	}
	res, err := protocol.SameProtocol{RoundTripper: g.c.transport(u.Hostname(), nil, reach.dialCheck(u))}.RoundTrip(req)
	if err != nil {
		return nil, g.c.explain(u, err, hidden, g.limit)
	}
	res.Body = bounded{res.Body, &io.LimitedReader{R: res.Body, N: maxBytes}}
	return res, nil
}

// errLarge reports that a response exceeds the limit.
var errLarge = errors.New("the response is too large")

// bounded is a body that fails when it exceeds the limit.
type bounded struct {
	io.Closer
	rest *io.LimitedReader
}

// Read implements [io.Reader].
func (b bounded) Read(p []byte) (int, error) {
	n, err := b.rest.Read(p)
	if errors.Is(err, io.EOF) && b.rest.N <= 0 {
		err = errLarge
	}
	return n, err
}
