package outbound

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestDo calls a service that a user names.
func TestDo(t *testing.T) {
	var got []string
	over := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, r.Method+" "+r.URL.Path+" "+r.Header.Get("X-Test")+" "+string(body))
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/planted", http.StatusTemporaryRedirect)
		case "/large":
			_, _ = io.WriteString(w, strings.Repeat("planted", maxBytes/7+1))
		case "/drips":
			_, _ = io.WriteString(w, "planted")
			_ = http.NewResponseController(w).Flush()
			<-over // not the request's end, at which the response would be complete
		case "/refused":
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "no")
		}
	}))
	defer server.Close()
	defer close(over)
	c := &Client{Roots: x509.NewCertPool(), Reach: Reach{Internal: thisMachine}}
	c.Roots.AddCert(server.Certificate())
	do := func(url string) (Answer, error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if strings.HasSuffix(url, "/drips") {
			time.AfterFunc(50*time.Millisecond, cancel)
		}
		return c.Do(ctx, Call{Method: http.MethodPut, URL: url, Header: map[string]string{"X-Test": "x"}, Body: []byte("body")})
	}
	if a, err := do(server.URL + "/refused"); err != nil || a.Status != http.StatusForbidden || string(a.Body) != "no" || got[0] != "PUT /refused x body" {
		t.Errorf("a refusal is %+v, %v, after %q", a, err, got)
	}
	for url, want := range map[string]string{
		server.URL + "/moved": "a redirect", server.URL + "/large": "more than 1048576 bytes", server.URL + "/drips": "failed",
		strings.Replace(server.URL, "https", "http", 1): "must begin with https://", "https://u:planted@127.0.0.1/": "user or password",
		"https://169.254.169.254/planted": "cannot be reached",
	} {
		if a, err := do(url); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "planted") || a.Body != nil {
			t.Errorf("%s returned %v, want %q", url, err, want)
		}
	}
	for _, one := range got {
		if strings.Contains(one, "planted") {
			t.Error("a redirect was followed")
		}
	}
	if _, err := do(server.URL + "/large"); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a large response: %v", err)
	}
	c.Internal = nil
	if _, err := do(server.URL + "/refused"); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("without the network: %v", err)
	}
}
