package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/api"
	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/system"
)

// TestEveryAnswerIsSigned checks responses of handlers, and responses sent before any handler runs.
func TestEveryAnswerIsSigned(t *testing.T) {
	f := newFixture(t, options{})
	handler := api.New(api.Deps{
		Log: storetest.Log(), Identity: f.identity, Stacks: f.stacks, ExternalURL: "http://server.test",
		Limits: request.Limits{Body: 100},
		Server: system.Server{Metrics: prometheus.NewRegistry(), Ready: func(*http.Request) error { panic("out of order") }},
	})
	for _, tt := range []struct {
		method, path, auth, body string
		status                   int
	}{
		{"GET", "/api/capabilities", "", "", 200},
		{"GET", "/api/user", "token " + f.admin, "", 200},
		{"GET", "/api/user/", "token " + f.admin, "", 200},
		{"HEAD", "/healthz", "", "", 405},
		{"GET", "/api/user", "token wrong", "", 401},
		{"GET", "/api/user", "", "", 401},
		{"GET", "/api/nowhere", "token " + f.admin, "", 404},
		{"GET", "/", "", "", 200},
		{"BREW", "/api/user", "token " + f.admin, "", 405},
		{"POST", "/api/user/tokens", "token " + f.admin, "{", 400},
		{"POST", "/api/user/tokens", "token " + f.admin, `{"description":"` + strings.Repeat("x", 200) + `"}`, 413},
		{"GET", "/metrics", "", "", 403},
		{"GET", "/readyz", "", "", 500},
	} {
		r := httptest.NewRequest(tt.method, tt.path, strings.NewReader(tt.body))
		r.RemoteAddr = "192.0.2.1:4711"
		r.Header.Set(protocol.HeaderNonce, "a nonce")
		if tt.auth != "" {
			r.Header.Set("Authorization", tt.auth)
		}
		w, want := httptest.NewRecorder(), httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		protocol.SignAnswers(want, r).WriteHeader(tt.status)
		if got := w.Header().Get(protocol.HeaderAnswer); w.Code != tt.status || got == "" || got != want.Header().Get(protocol.HeaderAnswer) {
			t.Errorf("%s %s: status %d with digest %q, want %d with %q", tt.method, tt.path, w.Code, got, tt.status, want.Header().Get(protocol.HeaderAnswer))
		}
		r.Header.Del(protocol.HeaderNonce)
		w = httptest.NewRecorder()
		if handler.ServeHTTP(w, r); w.Header().Get(protocol.HeaderAnswer) != "" {
			t.Errorf("%s %s: signed without a nonce", tt.method, tt.path)
		}
	}
}
