package protocol_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"workflowagent/internal/protocol"
)

// TestCancelledWithItsResponse cancels a call when its response arrives. The response is closed, so that its connection
// and the timer of the call do not outlive the call.
func TestCancelledWithItsResponse(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	body := &closedBody{}
	c := newClient(t, nil, func(o *protocol.Options) {
		o.HTTPClient = &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			cancel()
			return &http.Response{StatusCode: http.StatusOK, Body: body}, nil
		})}
	})
	if _, err := c.Status(ctx, secret, "d"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if !body.closed {
		t.Error("the response is still open")
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type closedBody struct {
	strings.Reader
	closed bool
}

func (b *closedBody) Close() error {
	b.closed = true
	return nil
}
