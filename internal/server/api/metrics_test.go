package api_test

import (
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/api"
	"workflowagent/internal/server/api/system"
)

// TestWhoReadsMetrics checks that only callers with the token can read the metrics. Behind a proxy
// on this machine, all callers appear to be local, and no header is a sign of all proxies.
func TestWhoReadsMetrics(t *testing.T) {
	for _, tt := range []struct {
		name, token, remote, authorization string
		status                             int
	}{
		{"caller on the machine", "", "127.0.0.1:5", "", 403},
		{"IPv6", "", "[::1]:5", "", 403},
		{"another machine", "", "10.0.0.7:5", "", 403},
		{"no token set, empty token", "", "127.0.0.1:5", "Bearer ", 403},
		{"token set, caller on the machine", "secret", "127.0.0.1:5", "", 403},
		{"wrong token", "secret", "127.0.0.1:5", "Bearer secre", 403},
		{"token", "secret", "10.0.0.7:5", "Bearer secret", 200},
	} {
		handler := api.New(api.Deps{Log: storetest.Log(), Server: system.Server{Metrics: prometheus.NewRegistry(), MetricsToken: func() string { return tt.token }}})
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.RemoteAddr, r.Host = tt.remote, "127.0.0.1:8800"
		if tt.authorization != "" {
			r.Header.Set("Authorization", tt.authorization)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != tt.status {
			t.Errorf("%s: %d, want %d", tt.name, w.Code, tt.status)
		}
	}
}
