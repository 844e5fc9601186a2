package runner

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"workflowagent/internal/protocol"
)

func TestForward(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(append(body, " from "+r.Host...))
	}))
	defer server.Close()
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().String()
	free.Close()
	stop, err := forward(t.Context(), &protocol.Launch{ServiceURL: "http://" + at, ServerAddress: server.Listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	get := func() (string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+at, strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		return string(body), err
	}
	for range 3 {
		if got, err := get(); err != nil || got != "hello from "+at {
			t.Fatalf("through the forwarder: %q, %v", got, err)
		}
	}
	stop()
	if got, err := get(); err == nil {
		t.Errorf("after its end, the forwarder still answers %q", got)
	}
}

func TestForwardedAddress(t *testing.T) {
	for given, want := range map[string]string{
		"http://127.0.0.1:8800": "127.0.0.1:8800", "http://localhost:8800": "127.0.0.1:8800",
		"http://localhost": "127.0.0.1:80", "https://[::1]": "[::1]:443", "https://example.com": "",
	} {
		got, err := forwardedAddress(given)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", given, got, err, want)
		}
	}
}
