package reach

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/testcert"

	"workflowagent/internal/dev/must"
)

// direct bypasses any proxy in the environment.
func direct(*http.Request) (*url.URL, error) { return nil, nil }

func try(t *testing.T, rawURL string, o Options) *Trace {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if o.Proxy == nil {
		o.Proxy = direct
	}
	return Try(ctx, rawURL, o)
}

func (t *Trace) want(tb testing.TB, stage Stage, words ...string) {
	tb.Helper()
	if t.Failed != stage {
		tb.Fatalf("ended at %q (%s), want %q", t.Failed, t.Problem, stage)
	}
	for _, word := range words {
		if !strings.Contains(t.Problem+"\n"+t.Advice, word) {
			tb.Errorf("neither problem %q nor advice %q contains %q", t.Problem, t.Advice, word)
		}
	}
}

func authority(t *testing.T) *testcert.Authority {
	t.Helper()
	return must.Get(testcert.NewAuthority("Company Root"))(t)
}

// leaf returns a server's certificate. It is self-signed if a is nil.
func leaf(t *testing.T, a *testcert.Authority, from, to time.Time, hosts ...string) tls.Certificate {
	t.Helper()
	return must.Get(a.Issue(&x509.Certificate{Subject: pkix.Name{CommonName: "the server"}, NotBefore: from, NotAfter: to}, hosts...))(t)
}

func serveTLS(t *testing.T, cert tls.Certificate) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.Config.ErrorLog = stdlog.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

func TestAnswer(t *testing.T) {
	ahead := time.Now().Add(10 * time.Minute)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.Header.Get("User-Agent") != "doctor" {
			t.Errorf("headers %v", r.Header)
		}
		w.Header().Set("Date", ahead.UTC().Format(http.TimeFormat))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer s.Close()
	trace := try(t, s.URL+"/x", Options{UserAgent: "doctor"})
	trace.want(t, "")
	if trace.Code != 401 || trace.ContentType != "application/json" || trace.Connected != s.Listener.Addr().String() || !trace.Reached(StageHTTP) {
		t.Errorf("got %+v", trace)
	}
	if !trace.SkewKnown || trace.Skew > -9*time.Minute || trace.Skew < -11*time.Minute {
		t.Errorf("the skew is %s", trace.Skew)
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://user:secret@login.example.com/", http.StatusFound)
	}))
	defer s.Close()
	if trace := try(t, s.URL, Options{}); trace.Code != 302 || trace.Location != "https://user:xxxxx@login.example.com/" {
		t.Errorf("got %+v", trace)
	}
}

func TestBadURL(t *testing.T) {
	for _, raw := range []string{"", "api.example.com", "ftp://x", "https://", "https://us er:secret@h", "http://[::1"} {
		trace := try(t, raw, Options{})
		trace.want(t, StageURL, "https://api.example.com")
		if strings.Contains(trace.Problem+trace.URL, "secret") {
			t.Errorf("%+v contains a password", trace)
		}
	}
}

func TestUnknownName(t *testing.T) {
	trace := try(t, "https://no-such-host.invalid/", Options{})
	trace.want(t, StageDNS, "no-such-host.invalid")
	if trace.Reached(StageDNS) || !trace.Reached(StageURL) {
		t.Error("the stages are in the wrong order")
	}
}

func TestClosedPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	trace := try(t, "https://"+addr, Options{})
	trace.want(t, StageConnect, addr, "refused", "firewalls")
}

func TestCertificates(t *testing.T) {
	ca, other := authority(t), authority(t)
	day := 24 * time.Hour
	now := time.Now()
	for _, tt := range []struct {
		name  string
		cert  tls.Certificate
		capem []byte
		want  Stage
		words []string
	}{
		{"self-signed", leaf(t, nil, now.Add(-day), now.Add(day), "127.0.0.1"), nil, StageTLS, []string{"self-signed", "ca_certificate_file"}},
		{"unknown authority", leaf(t, ca, now.Add(-day), now.Add(day), "127.0.0.1"), nil, StageTLS, []string{"untrusted authority: CN=Company Root", "ca_certificate_file"}},
		{"only another authority is configured", leaf(t, ca, now.Add(-day), now.Add(day), "127.0.0.1"), other.PEM(), StageTLS, []string{"does not contain that authority"}},
		{"its authority is configured", leaf(t, ca, now.Add(-day), now.Add(day), "127.0.0.1"), ca.PEM(), "", nil},
		{"expired", leaf(t, ca, now.Add(-2*day), now.Add(-day), "127.0.0.1"), ca.PEM(), StageTLS, []string{"the server expired on", "renew", "clock"}},
		{"not valid yet", leaf(t, ca, now.Add(day), now.Add(2*day), "127.0.0.1"), ca.PEM(), StageTLS, []string{"valid only from", "clock"}},
		{"another host", leaf(t, ca, now.Add(-day), now.Add(day), "other.example.com", "10.0.0.1"), ca.PEM(), StageTLS, []string{"other.example.com, 10.0.0.1"}},
		{"no host", leaf(t, ca, now.Add(-day), now.Add(day)), ca.PEM(), StageTLS, []string{"no host"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			trace := try(t, serveTLS(t, tt.cert), Options{CAPEM: tt.capem})
			trace.want(t, tt.want, tt.words...)
			if len(trace.Certificates) == 0 || trace.TLSVersion == "" || trace.PrivateCA != (tt.want == "") {
				t.Errorf("got %+v", trace)
			}
		})
	}
}

// TestHostileHeaders checks that a server cannot fill the memory or the terminal.
func TestHostileHeaders(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/redirect" {
			w.Header().Set("Location", "https://login.example.com/"+large[:8000])
			w.WriteHeader(http.StatusFound)
			return
		}
		w.Header().Set("X", large)
	}))
	defer s.Close()
	if trace := try(t, s.URL+"/redirect", Options{}); trace.Code != http.StatusFound || len(trace.Location) > maxText {
		t.Errorf("a long redirect: %+v", trace)
	}
	try(t, s.URL, Options{}).want(t, StageHTTP, "headers")
}

func TestNotTLS(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	try(t, strings.Replace(s.URL, "http:", "https:", 1), Options{}).want(t, StageTLS, "does not speak TLS", "scheme or the port")
}

func TestSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	Try(ctx, "http://"+l.Addr().String(), Options{Proxy: direct}).want(t, StageHTTP, "the server did not respond in time")
}

// proxyTo starts a proxy that connects every CONNECT request to addr. If refuse is set, the proxy
// rejects the requests with this status.
func proxyTo(t *testing.T, addr string, refuse int) *url.URL {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse != 0 || r.Method != http.MethodConnect {
			w.WriteHeader(refuse)
			return
		}
		out, err := net.Dial("tcp", addr)
		if err != nil {
			t.Error(err)
			return
		}
		defer out.Close()
		in, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer in.Close()
		io.WriteString(in, "HTTP/1.1 200 OK\r\n\r\n")
		done := make(chan struct{})
		go func() { defer close(done); io.Copy(out, in); out.(*net.TCPConn).CloseWrite() }()
		io.Copy(in, out)
		in.Close()
		<-done
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("me", "proxy-password")
	return u
}

func TestProxy(t *testing.T) {
	ca := authority(t)
	at := serveTLS(t, leaf(t, ca, time.Now().Add(-time.Hour), time.Now().Add(time.Hour), "agent.example.invalid"))
	addr := strings.TrimPrefix(at, "https://")
	by := func(u *url.URL) Options {
		return Options{CAPEM: ca.PEM(), Proxy: func(*http.Request) (*url.URL, error) { return u, nil }}
	}
	// The proxy resolves the name.
	proxy := proxyTo(t, addr, 0)
	trace := try(t, "https://agent.example.invalid/", by(proxy))
	trace.want(t, "")
	if trace.Proxy != "http://"+proxy.Host || trace.Host != proxy.Host || trace.Code != 404 || !trace.PrivateCA {
		t.Errorf("got %+v", trace)
	}
	try(t, "https://agent.example.invalid/", by(proxyTo(t, addr, http.StatusProxyAuthRequired))).want(t, StageHTTP, "requires credentials", "HTTPS_PROXY")
	try(t, "https://agent.example.invalid/", by(proxyTo(t, addr, http.StatusForbidden))).want(t, StageHTTP, "agent.example.invalid", "Forbidden", "NO_PROXY")
	try(t, "https://agent.example.invalid/", by(&url.URL{Scheme: "http", Host: "127.0.0.1:1"})).want(t, StageConnect, "127.0.0.1:1", "the proxy runs there")
	broken := Options{Proxy: func(*http.Request) (*url.URL, error) {
		return nil, errors.New(`invalid proxy address "://me:proxy-password"`)
	}}
	trace = try(t, "https://agent.example.invalid/", broken)
	trace.want(t, StageURL, "HTTPS_PROXY")
	if strings.Contains(trace.Problem+trace.Advice, "proxy-password") {
		t.Error("the result contains the proxy's password")
	}
}
