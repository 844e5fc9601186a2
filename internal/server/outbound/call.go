package outbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Do makes a request to a service that a user names, and returns any response of at most 1 MiB. It makes its calls with https,
// to public addresses and to those in the client's internal networks, and never to link-local ones. It does not follow
// redirects, and waits at most 10 seconds. Errors never contain the rest of the URL, the request or the response.
func (c *Client) Do(ctx context.Context, call Call) (Answer, error) {
	u, err := parse(call.URL)
	if err == nil && u.Scheme != "https" {
		err = errors.New("must begin with https://")
	}
	if err != nil {
		return Answer{}, fmt.Errorf("the URL %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	hidden, err := c.resolve(ctx, u)
	if err != nil {
		return Answer{}, c.explain(u, err, hidden, maxTime)
	}
	req, err := newRequest(ctx, call.Method, u, call.Header, call.Body)
	if err != nil {
		return Answer{}, err
	}
	res, err := send(req, c.transport(u.Hostname(), nil, c.dialCheck(u)))
	if err != nil {
		return Answer{}, c.explain(u, err, hidden, maxTime)
	}
	defer res.Body.Close()
	if isRedirect(res) {
		return Answer{}, fmt.Errorf("%s responded with a redirect, which is not followed", u.Host)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBytes+1))
	if err != nil {
		return Answer{}, c.explain(u, err, hidden, maxTime)
	}
	if len(body) > maxBytes {
		return Answer{}, fmt.Errorf("%w: that of %s has more than %d bytes", ErrTooLarge, u.Host, maxBytes)
	}
	return Answer{Status: res.StatusCode, Header: res.Header, Body: body, URL: call.URL}, nil
}

func isRedirect(res *http.Response) bool { return res.StatusCode >= 300 && res.StatusCode < 400 }
