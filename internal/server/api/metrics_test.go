package api_test

import (
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/api"
	"workflowagent/internal/server/api/system"
)

// TestWhoReadsMetrics checks which callers can read the metrics. All connections from callers
// behind a local proxy appear to be local.
func TestWhoReadsMetrics(t *testing.T) {
	for _, tt := range []struct {
		name, token, remote, host string
		header                    map[string]string
		status                    int
	}{
		{"caller on the machine", "", "127.0.0.1:5", "127.0.0.1:8800", nil, 200},
		{"by name", "", "127.0.0.1:5", "localhost:8800", nil, 200},
		{"by name without port", "", "127.0.0.1:5", "localhost", nil, 200},
		{"IPv6", "", "[::1]:5", "[::1]:8800", nil, 200},
		{"another machine", "", "10.0.0.7:5", "127.0.0.1:8800", nil, 403},
		{"proxy that keeps the host", "", "127.0.0.1:5", "workflow.example.com", nil, 403},
		{"proxy that forwards the client's address", "", "127.0.0.1:5", "127.0.0.1:8800", map[string]string{"X-Forwarded-For": "10.0.0.7"}, 403},
		{"standard", "", "127.0.0.1:5", "127.0.0.1:8800", map[string]string{"Forwarded": "for=10.0.0.7"}, 403},
		{"X-Real-IP", "", "127.0.0.1:5", "127.0.0.1:8800", map[string]string{"X-Real-IP": "10.0.0.7"}, 403},
		{"X-Forwarded-Proto", "", "127.0.0.1:5", "127.0.0.1:8800", map[string]string{"X-Forwarded-Proto": "https"}, 403},
		{"Via", "", "127.0.0.1:5", "127.0.0.1:8800", map[string]string{"Via": "1.1 proxy"}, 403},
		{"token set, caller on the machine", "secret", "127.0.0.1:5", "127.0.0.1:8800", nil, 403},
		{"token set, proxy", "secret", "127.0.0.1:5", "workflow.example.com", nil, 403},
		{"wrong token", "secret", "127.0.0.1:5", "127.0.0.1:8800", map[string]string{"Authorization": "Bearer secre"}, 403},
		{"token", "secret", "10.0.0.7:5", "workflow.example.com", map[string]string{"Authorization": "Bearer secret"}, 200},
	} {
		handler := api.New(api.Deps{Log: storetest.Log(), Server: system.Server{Metrics: prometheus.NewRegistry(), MetricsToken: tt.token}})
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.RemoteAddr, r.Host = tt.remote, tt.host
		for k, v := range tt.header {
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != tt.status {
			t.Errorf("%s: %d, want %d", tt.name, w.Code, tt.status)
		}
	}
	// nginx with its default settings forwards no information about the client, and sends the
	// upstream's name as the host.
	handler := api.New(api.Deps{Log: storetest.Log(), Server: system.Server{Metrics: prometheus.NewRegistry()}})
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.RemoteAddr, r.Host = "127.0.0.1:5", "127.0.0.1:8800"
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.0", 1, 0
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	if w.Code != 403 {
		t.Errorf("HTTP/1.0: %d, want 403", w.Code)
	}
}
