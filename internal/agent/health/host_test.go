package health

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"testing"

	"workflowagent/internal/agent/status"
)

// TestHostsOfRequests sends requests with host names that a DNS rebinding attack could use. The
// server must reject them.
func TestHostsOfRequests(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	log, _ := newLog()
	handler := Handler(NewMetrics("v1"), func() status.Report { return status.Report{State: status.Ready, Healthy: true} })
	served := start(func() { serveOn(ctx, listener, "agent.example.com:8080", handler, log) })
	defer wait(t, served, "the end of the server")
	defer cancel()
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{
		"":                                    http.StatusOK, // the address itself
		"localhost:8080":                      http.StatusOK,
		"LOCALHOST.":                          http.StatusOK,
		"agent.localhost":                     http.StatusOK,
		"127.0.0.1":                           http.StatusOK,
		"[::1]:8080":                          http.StatusOK,
		"[::1]":                               http.StatusOK,
		"10.42.0.7:8080":                      http.StatusOK, // the kubelet uses the pod's address
		"[fd00::7]:8080":                      http.StatusOK,
		"agent.example.com":                   http.StatusOK, // http_server_address
		"workflow-agent.ns.svc:8080":          http.StatusOK, // Prometheus with role: service
		"workflow-agent.ns.svc.cluster.local": http.StatusOK,
		hostname + ":8080":                    http.StatusOK,
		"evil.example:8080":                   http.StatusMisdirectedRequest,
		"evil.example":                        http.StatusMisdirectedRequest,
		"localhost.evil.example":              http.StatusMisdirectedRequest,
		"127.0.0.1.evil.example":              http.StatusMisdirectedRequest,
		"x.svc.evil.example":                  http.StatusMisdirectedRequest,
		"agent.example.com.evil":              http.StatusMisdirectedRequest,
		"evilsvc":                             http.StatusMisdirectedRequest,
	} {
		for _, path := range []string{"/status", "/status.json", "/healthz", "/readyz", "/metrics"} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			request.Host = host
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("%s with Host %q: %d, want %d", path, host, response.StatusCode, want)
			}
		}
	}
}

func TestHostsBeyondLoopback(t *testing.T) {
	for listens, want := range map[string]int{
		"0.0.0.0:8080":          http.StatusOK,
		"[::]:8080":             http.StatusOK,
		"192.0.2.7:8080":        http.StatusOK,
		"127.0.0.1:8080":        http.StatusMisdirectedRequest,
		"[::1]:8080":            http.StatusMisdirectedRequest,
		"[::ffff:127.0.0.1]:80": http.StatusMisdirectedRequest,
	} {
		address := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(listens))
		handler := onlyKnownHosts(address, listens, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		request := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
		request.Host = "vm.corp.example:8080"
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if answer.Code != want {
			t.Errorf("listening on %s: %d, want %d", listens, answer.Code, want)
		}
	}
}
