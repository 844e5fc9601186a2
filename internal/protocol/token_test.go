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
