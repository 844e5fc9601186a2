package outbound

import (
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"workflowagent/internal/dev/must"
)

func newPeer(t *testing.T, address, authority string) *Peer {
	t.Helper()
	p, err := NewPeer(address, authority, Reach{Internal: thisMachine})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestPeer(t *testing.T) {
	address := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Got", r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusTeapot)
		w.Write(body)
	})
	p := newPeer(t, address+"/api/", "")
	if p.Base() != address+"/api" {
		t.Errorf("base %q", p.Base())
	}
	a, err := p.Do(t.Context(), Call{Method: "PATCH", URL: p.Base() + "/a%2Fb?x=1", Header: map[string]string{"Authorization": "token"}, Body: []byte("hello")})
	if err != nil {
		t.Fatal(err)
	}
	if a.Status != http.StatusTeapot || string(a.Body) != "hello" || a.Header["X-Got"][0] != "PATCH /api/a%2Fb?x=1 token" {
		t.Errorf("got %+v", a)
	}
}

// TestPeerKeepsItsOrigin checks that neither a URL nor a redirect directs a request or its
// credentials elsewhere.
func TestPeerKeepsItsOrigin(t *testing.T) {
	var strayed atomic.Int64
	elsewhere := serve(t, nil, func(http.ResponseWriter, *http.Request) { strayed.Add(1) })
	var seen []string
	address := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, elsewhere, http.StatusFound)
		case "/tls":
			http.Redirect(w, r, "https://"+r.Host+"/new", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusMovedPermanently)
		case "/old":
			http.Redirect(w, r, "/new", http.StatusMovedPermanently)
		case "/kept":
			http.Redirect(w, r, "/new", http.StatusTemporaryRedirect)
		}
	})
	p := newPeer(t, address, "")
	for _, tt := range []struct {
		method, url string
		status      int    // 0 means an error
		last        string // request that the peer got
	}{
		{"GET", elsewhere, 0, ""},
		{"GET", strings.Replace(address, "http://", "http://user@", 1), 0, ""},
		{"GET", strings.Replace(address, "http://", "https://", 1), 0, ""},
		{"GET", "/relative", 0, ""},
		{"GET", address + "/away", 0, "GET /away secret"},
		{"GET", address + "/tls", 0, "GET /tls secret"},
		{"GET", address + "/loop", 0, "GET /loop secret"},
		{"GET", address + "/old", 200, "GET /new secret"},
		{"POST", address + "/old", 301, "POST /old secret"},
		{"POST", address + "/kept", 200, "POST /new secret"},
	} {
		seen = nil
		a, err := p.Do(t.Context(), Call{Method: tt.method, URL: tt.url, Header: map[string]string{"Authorization": "secret"}, Body: []byte("x")})
		last := ""
		if len(seen) > 0 {
			last = seen[len(seen)-1]
		}
		if a.Status != tt.status || (err == nil) != (tt.status > 0) || last != tt.last {
			t.Errorf("%s %s: status %d, error %v, last request %q", tt.method, tt.url, a.Status, err, last)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error contains the credential: %v", err)
		}
		if tt.status == 200 && a.URL != address+"/new" {
			t.Errorf("%s: responded from %s", tt.url, a.URL)
		}
	}
	if strayed.Load() != 0 {
		t.Errorf("another origin got %d requests", strayed.Load())
	}
}

func TestPeerBounds(t *testing.T) {
	address := serve(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, strings.Repeat("x", maxPeerBytes+1))
	})
	if _, err := newPeer(t, address, "").Do(t.Context(), Call{Method: "GET", URL: address}); err == nil || !strings.Contains(err.Error(), "more than 10485760 bytes") {
		t.Errorf("a large response: %v", err)
	}
	for _, forbidden := range []string{"https://169.254.169.254", "https://[fe80::1]", "https://[fd00:ec2::254]"} {
		if _, err := NewPeer(forbidden, "", Reach{Anywhere: true}); err == nil || !strings.Contains(err.Error(), "cannot be called") {
			t.Errorf("%s: %v", forbidden, err)
		}
	}
	if _, err := Dial(t.Context(), "169.254.169.254:22", Reach{Anywhere: true}); err == nil || !strings.Contains(err.Error(), "cannot be called") {
		t.Errorf("dialing a link-local address: %v", err)
	}
	for _, bad := range []string{"http://forge.example.com", "ssh://forge.example.com", "https://forge.example.com?x", ""} {
		if _, err := NewPeer(bad, "", Reach{}); err == nil {
			t.Errorf("the address %q was accepted", bad)
		}
	}
}

func TestPeerAuthority(t *testing.T) {
	private := authority(t)
	cert := must.Get(private.Issue(&x509.Certificate{}, loopback))(t)
	address := serve(t, &cert, hello)
	text := string(private.PEM())
	if _, err := newPeer(t, address, "").Do(t.Context(), Call{Method: "GET", URL: address}); err == nil || !strings.Contains(err.Error(), "not trusted") {
		t.Errorf("without the authority: %v", err)
	}
	if a, err := newPeer(t, address, text).Do(t.Context(), Call{Method: "GET", URL: address}); err != nil || string(a.Body) != "hello" {
		t.Errorf("with the authority: %v", err)
	}
	if CheckAuthority("no certificate") == nil || CheckAuthority(text) != nil || CheckAuthority(" ") != nil {
		t.Error("CheckAuthority does not recognize certificates")
	}
}

func TestDial(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := Dial(t.Context(), listener.Addr().String(), Reach{Internal: thisMachine})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	listener.Close()
	if _, err := Dial(t.Context(), listener.Addr().String(), Reach{Internal: thisMachine}); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("dialing a closed port: %v", err)
	}
}
