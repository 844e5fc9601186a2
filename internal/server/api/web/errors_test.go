package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// TestMessages pins the words with which messages for clients of the API begin.
func TestMessages(t *testing.T) {
	for _, tt := range []struct {
		err    error
		status int
		want   string
	}{
		{fault.Invalid("no %s", "name"), 400, "Bad Request: no name"},
		{fault.New(fault.KindUnauthenticated, "no token"), 401, "Unauthorized: no token"},
		{fault.Forbidden("no right"), 403, "Forbidden: no right"},
		{fault.NotFound("no stack"), 404, "Not Found: no stack"},
		{fmt.Errorf("starting: %w", fault.Conflict("Another update is currently in progress.")), 409, "Conflict: Another update is currently in progress."},
		{fault.New(fault.KindGone, "superseded"), 410, "Gone: superseded"},
		{fault.New(fault.KindTooLarge, "long"), 413, "Request Entity Too Large: long"},
		{fault.Wrap(fault.KindDamaged, errors.New("cause"), "damaged"), 500, "Internal Server Error: damaged"},
		{fault.New(fault.KindOutcomeUnknown, "unknown"), 500, "Internal Server Error: unknown"},
		{fault.New(fault.KindUnavailable, "busy"), 503, "Service Unavailable: busy"},
		{&Error{Status: http.StatusTooManyRequests, Message: "wait"}, 429, "Too Many Requests: wait"},
		{fmt.Errorf("reading: %w", store.ErrNotFound), 404, "Not Found"},
		{context.Canceled, statusClientClosed, "the client closed the request"},
	} {
		status, message := Classify(tt.err)
		if got := Message(status, message); status != tt.status || got != tt.want {
			t.Errorf("%v: status %d and %q, want %d and %q", tt.err, status, got, tt.status, tt.want)
		}
	}
}
