package mirror

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/api/clientaddr"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/config"
)

var (
	key      = bytes.Repeat([]byte{1}, 32)
	otherKey = bytes.Repeat([]byte{2}, 32)
)

// routes returns a server's handler. wrap, unless nil, is in front of it.
func routes(trust clientaddr.Trust, wrap func(http.Handler) http.Handler) http.Handler {
	mux := chi.NewRouter()
	rt := web.NewRouter(mux, nil, nil, nil)
	Register(rt, Server{Key: key, Trust: trust, Instance: "i", Host: "h", Version: "v1"})
	rt.Public(http.MethodGet, readyPath, func(w http.ResponseWriter, r *http.Request) error {
		return web.WriteJSON(w, r, http.StatusOK, map[string]string{"status": "ready"})
	})
	handler := trust.Handler(mux)
	if wrap != nil {
		handler = wrap(handler)
	}
	return handler
}

func direct(*http.Request) (*url.URL, error) { return nil, nil }

func at(t *testing.T, address string, key []byte) *Caller {
	t.Helper()
	c := must.Get(AtURL(address, nil, key, direct))(t)
	t.Cleanup(c.Close)
	return c
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestLook(t *testing.T) {
	address := serve(t, routes(clientaddr.Trust{Source: clientaddr.Connection}, nil))
	seen, local, back, err := at(t, address, key).Look(t.Context())
	if err != nil || !back || !seen.Header || seen.Instance != "i" || seen.Version != "v1" || "http://"+seen.RequestHost != address {
		t.Errorf("got %+v, back %t, %v", seen, back, err)
	}
	if seen.Connection != local || seen.Client != "127.0.0.1" || seen.Trusted || len(seen.ForwardedFor) != 1 || !IsForged(seen.ForwardedFor[0]) {
		t.Errorf("on the connection %s: %+v", local, seen)
	}
	var trusted clientaddr.Proxies
	must.OK(t, trusted.UnmarshalText([]byte("127.0.0.1")))
	address = serve(t, routes(clientaddr.Trust{Source: clientaddr.XForwardedFor, Proxies: trusted}, nil))
	if seen, local, _, err = at(t, address, key).Look(t.Context()); err != nil || !IsForged(seen.Client) || seen.Connection != local || !seen.Trusted {
		t.Errorf("a forged address: %+v, %v", seen, err)
	}
}

// TestOnlyTheKey checks that neither callers nor servers without the key learn or prove anything.
func TestOnlyTheKey(t *testing.T) {
	address := serve(t, routes(clientaddr.Trust{Source: clientaddr.Connection}, nil))
	for name, k := range map[string][]byte{"another key": otherKey, "no key": nil} {
		_, _, _, err := at(t, address, k).Look(t.Context())
		if status, ok := errors.AsType[*StatusError](err); !ok || status.Status != http.StatusNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	liar := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"seen":{"instance":"i"},"proof":"AAAA"}`)
	}))
	if _, _, _, err := at(t, liar, key).Look(t.Context()); !errors.Is(err, ErrForeign) {
		t.Errorf("a server without the key: %v", err)
	}
	if err := at(t, liar, key).Ready(t.Context()); !errors.Is(err, ErrForeign) {
		t.Errorf("a program that is no server: %v", err)
	}
	now := time.Now()
	text, nonce := credential(key, requestPath, now)
	if got, ok := check(key, requestPath, text, now.Add(validFor-time.Second)); !ok || got != nonce {
		t.Errorf("a credential is refused: %q, %t", got, ok)
	}
	for name, try := range map[string]func() (string, bool){
		"an old credential":      func() (string, bool) { return check(key, requestPath, text, now.Add(validFor+time.Minute)) },
		"another key":            func() (string, bool) { return check(otherKey, requestPath, text, now) },
		"a server without a key": func() (string, bool) { return check(nil, requestPath, text, now) },
		"another route":          func() (string, bool) { return check(key, bodyPath, text, now) },
		"another time":           func() (string, bool) { return check(key, requestPath, "1"+text, now) },
		"nonsense":               func() (string, bool) { return check(key, requestPath, "x", now) },
	} {
		if _, ok := try(); ok {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestStream(t *testing.T) {
	address := serve(t, routes(clientaddr.Trust{Source: clientaddr.Connection}, nil))
	if atOnce, err := at(t, address, key).Stream(t.Context()); err != nil || !atOnce {
		t.Errorf("a stream: %t, %v", atOnce, err)
	}
	holds := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, firstEvent+lastEvent) }))
	if atOnce, err := at(t, holds, key).Stream(t.Context()); err != nil || atOnce {
		t.Errorf("a stream that is held back: %t, %v", atOnce, err)
	}
	if _, err := at(t, address, otherKey).Stream(t.Context()); err == nil {
		t.Error("a stream without the key")
	}
}

func TestUpload(t *testing.T) {
	address := serve(t, routes(clientaddr.Trust{Source: clientaddr.Connection}, nil))
	must.OK(t, at(t, address, key).Upload(t.Context(), 1<<20))
	narrow := serve(t, routes(clientaddr.Trust{Source: clientaddr.Connection}, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength > 1<<16 {
				w.WriteHeader(http.StatusRequestEntityTooLarge)
				return
			}
			next.ServeHTTP(w, r)
		})
	}))
	err := at(t, narrow, key).Upload(t.Context(), 1<<20)
	if status, ok := errors.AsType[*StatusError](err); !ok || status.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body: %v", err)
	}
}

// TestHostileAnswers checks that a proxy cannot fill the memory or the terminal of the doctor.
func TestHostileAnswers(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	for name, h := range map[string]http.Handler{
		"a long redirect": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://login.example.com/\x1b[2J"+large[:8000])
			w.WriteHeader(http.StatusFound)
		}),
		"a long header": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", large) }),
		"an endless body": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			for {
				if _, err := io.WriteString(w, "\x1b]0;title\a"+large); err != nil {
					return
				}
			}
		}),
	} {
		address := serve(t, h)
		_, _, _, err := at(t, address, key).Look(t.Context())
		if err == nil || len(err.Error()) > 1000 || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %.2000v", name, err)
		}
		if status, ok := errors.AsType[*StatusError](err); ok && (len(status.Text) > 200 || strings.Contains(status.Text, "\x1b")) {
			t.Errorf("%s: the text is %q", name, status.Text)
		}
	}
}

func TestRedirect(t *testing.T) {
	address := serve(t, http.RedirectHandler("https://user:secret@login.example.com/", http.StatusFound))
	_, _, _, err := at(t, address, key).Look(t.Context())
	if status, ok := errors.AsType[*StatusError](err); !ok || status.Location != "https://user:xxxxx@login.example.com/" {
		t.Errorf("got %v", err)
	}
}

// TestListeners asks servers that listen in every way.
func TestListeners(t *testing.T) {
	dir := must.Get(os.MkdirTemp("", "wfm"))(t) // short enough for a socket's path
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "http.sock")
	var foreign, unix clientaddr.Proxies
	must.OK(t, foreign.UnmarshalText([]byte("192.0.2.1")))
	must.OK(t, unix.UnmarshalText([]byte("unix")))
	for _, tt := range []struct {
		name, listen string
		trust        clientaddr.Trust
		secure       bool
	}{
		{"TCP", "tcp", clientaddr.Trust{Source: clientaddr.Connection}, false},
		{"TLS", "tcp", clientaddr.Trust{Source: clientaddr.Connection}, true},
		{"a unix socket", socket, clientaddr.Trust{Source: clientaddr.Connection}, false},
		{"the PROXY protocol on a unix socket", socket + "2", clientaddr.Trust{Source: clientaddr.ProxyProtocol, Proxies: unix}, false},
		{"the PROXY protocol of another machine", "tcp", clientaddr.Trust{Source: clientaddr.ProxyProtocol, Proxies: foreign}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			network, address := "tcp", "127.0.0.1:0"
			if tt.listen != "tcp" {
				network, address = "unix", tt.listen
			}
			l := must.Get(net.Listen(network, address))(t)
			s := httptest.NewUnstartedServer(routes(tt.trust, nil))
			s.Listener.Close()
			s.Listener = tt.trust.Listener(l, nil)
			c := config.Config{Listen: l.Addr().String(), ClientAddress: tt.trust.Source, ExternalURL: "https://deployments.example.com"}
			if network == "unix" {
				c.Listen = config.UnixPrefix + address
			}
			if tt.secure {
				s.StartTLS()
				c.TLSCert = "cert.pem"
			} else {
				s.Start()
			}
			t.Cleanup(s.Close)
			caller := must.Get(AtListener(c, key))(t)
			t.Cleanup(caller.Close)
			must.OK(t, caller.Ready(t.Context()))
			if seen, _, _, err := caller.Look(t.Context()); err != nil || seen.Secure != tt.secure || IsForged(seen.Client) {
				t.Errorf("got %+v, %v", seen, err)
			}
		})
	}
}

func TestTargets(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1:80", "0.0.0.0:80": "127.0.0.1:80 [::1]:80", "[::]:80": "127.0.0.1:80 [::1]:80", ":80": "127.0.0.1:80 [::1]:80",
		"10.0.0.5:80": "10.0.0.5:80", "unix:/run/x": "/run/x", "localhost:80": "localhost:80",
	} {
		var got []string
		for _, target := range targets(listen) {
			got = append(got, target[1])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, want %s", listen, got, want)
		}
	}
}
