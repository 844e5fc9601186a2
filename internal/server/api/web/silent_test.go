package web

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"workflowagent/internal/protocol"
)

// TestSilentHandlersAreSigned checks the response of a handler that writes nothing. For such a
// handler, net/http sends status 200.
func TestSilentHandlersAreSigned(t *testing.T) {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.Header.Set(protocol.HeaderNonce, "a nonce")
	SignAnswers(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
	if w.Code != http.StatusOK || w.Header().Get(protocol.HeaderAnswer) == "" {
		t.Errorf("%d without a signature", w.Code)
	}
}
