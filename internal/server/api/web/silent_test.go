package web

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"workflowagent/internal/protocol"
)

// TestSilentHandlersAreSigned covers handlers that write nothing, for which net/http sends a 200
// response.
func TestSilentHandlersAreSigned(t *testing.T) {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.Header.Set(protocol.HeaderNonce, "a nonce")
	SignAnswers(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
	if w.Code != http.StatusOK || w.Header().Get(protocol.HeaderAnswer) == "" {
		t.Errorf("%d without a signature", w.Code)
	}
}
