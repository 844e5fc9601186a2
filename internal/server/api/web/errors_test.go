package web

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/sys/unix"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/store"
)

// TestTemporaryErrorsAskForARetry checks the responses that make clients retry.
func TestTemporaryErrorsAskForARetry(t *testing.T) {
	for _, err := range []error{
		store.ErrBusy, store.ErrClosed, budget.ErrBusy, context.DeadlineExceeded, unix.ENOSPC,
	} {
		w := httptest.NewRecorder()
		WriteError(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody), fmt.Errorf("storing: %w", err))
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("%v: status %d with Retry-After %q, want 503 with a time", err, w.Code, w.Header().Get("Retry-After"))
		}
	}
}
