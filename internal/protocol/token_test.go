package protocol

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestCheckToken(t *testing.T) {
	for _, tt := range []struct {
		name          string
		with, without int // status
		want          TokenCheck
		code          int // of the expected error
	}{
		{"accepted", 404, 401, TokenCheck{Proven: true, PoolID: "p", PoolName: "a pool", ExternalURL: "https://x"}, 0},
		{"accepted by a server that has such a deployment", 200, 403, TokenCheck{Proven: true, PoolID: "p", PoolName: "a pool", ExternalURL: "https://x"}, 0},
		{"a server without such a path", 404, 404, TokenCheck{PoolID: "p", PoolName: "a pool", ExternalURL: "https://x"}, 0},
		{"refused", 401, 401, TokenCheck{}, 401},
		{"of another kind", 403, 401, TokenCheck{}, 403},
		{"broken", 500, 401, TokenCheck{}, 500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || r.URL.Path != StatusProbe || r.Header.Get(HeaderAgentID) != "" {
					t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
				}
				w.Header().Set(HeaderAgentPool, "p")
				w.Header().Set(HeaderPoolName, "a%20pool")
				w.Header().Set(HeaderExternalURL, "https://x")
				switch r.Header.Get("Authorization") {
				case "token pul-x":
					w.WriteHeader(tt.with)
				case "":
					w.WriteHeader(tt.without)
				}
			}))
			defer server.Close()
			client, err := NewClient(Options{BaseURL: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			got, err := client.CheckToken(t.Context(), "pul-x")
			if got != tt.want || StatusCode(err) != tt.code {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// TestRespectsSlots asks servers that answer like this product's, like a stock one, and a proxy that
// answers in place of either. After the last, the question must be repeated.
func TestRespectsSlots(t *testing.T) {
	for _, tt := range []struct {
		name, pool, kind, body string
		code                   int
		want, fails            bool
	}{
		{"with the extension", "p", "application/json", `{"code":404,"message":"Not Found"}`, 404, true, false},
		{"without it", "", "application/json", `{"code":404,"message":"Not Found"}`, 404, false, false},
		{"a proxy without a server", "", "text/html", `<html>no route</html>`, 404, false, true},
		{"another proxy", "", "text/html", `<html>gateway</html>`, 502, false, true},
		{"a refused token", "", "application/json", `{"code":401,"message":"Unauthorized"}`, 401, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if tt.pool != "" {
					w.Header().Set(HeaderAgentPool, tt.pool)
				}
				w.Header().Set("Content-Type", tt.kind)
				w.WriteHeader(tt.code)
				_, _ = w.Write([]byte(tt.body))
			}))
			defer server.Close()
			client, err := NewClient(Options{BaseURL: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if got, err := client.RespectsSlots(t.Context(), "pul-x"); got != tt.want || (err != nil) != tt.fails {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}
