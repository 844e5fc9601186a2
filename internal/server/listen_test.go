package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/dev/testcert"
	"workflowagent/internal/server/config"
)

func configWith(t *testing.T, dir string, flags map[string]string) (config.Config, error) {
	t.Helper()
	all := map[string]string{"listen": "127.0.0.1:0", "data_dir": dir, "organization": "acme"}
	maps.Copy(all, flags)
	return config.Load(config.LoadOptions{Flags: all, Cwd: dir})
}

func fetch(t *testing.T, client *http.Client, method, url string, header http.Header) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req := must.Get(http.NewRequestWithContext(ctx, method, url, nil))(t)
	if header != nil {
		req.Header = header
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res
}

// TestTLS serves with a certificate from files, and the same port after the certificate has changed.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	ca, next := must.Get(testcert.NewAuthority("this year"))(t), must.Get(testcert.NewAuthority("next year"))(t)
	must.OK(t, testcert.Write(must.Get(ca.Issue(&x509.Certificate{}, "127.0.0.1"))(t), cert, key))
	c := must.Get(configWith(t, dir, map[string]string{"tls_cert_file": cert, "tls_key_file": key, "redirect_listen": "127.0.0.1:0"}))(t)
	s := must.Get(New(t.Context(), c, "v1", storetest.Log(), io.Discard))(t)
	plain := "http://" + s.redirects.Addr().String()
	stop := run(t, s)
	defer func() { must.OK(t, stop()) }()

	with := func(a *testcert.Authority) *http.Client {
		transport := &http.Transport{DisableKeepAlives: true, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: a.Pool(), MinVersion: tls.VersionTLS12}}
		return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if !strings.HasPrefix(s.URL(), "https://127.0.0.1:") {
		t.Fatalf("the server's URL is %s", s.URL())
	}
	res := fetch(t, with(ca), http.MethodGet, s.URL()+"/healthz", nil)
	if res.StatusCode != http.StatusOK || res.ProtoMajor != 2 || res.Header.Get("Strict-Transport-Security") != strictTransport {
		t.Errorf("%s %s, header %v", res.Proto, res.Status, res.Header)
	}
	for version, want := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		dialer := tls.Dialer{Config: &tls.Config{RootCAs: ca.Pool(), MinVersion: version, MaxVersion: version}}
		conn, err := dialer.DialContext(t.Context(), "tcp", s.listener.Addr().String())
		if err == nil {
			_ = conn.Close()
		}
		if (err == nil) != want {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
	must.OK(t, testcert.Write(must.Get(next.Issue(&x509.Certificate{}, "127.0.0.1"))(t), cert, key))
	if res := fetch(t, with(next), http.MethodGet, s.URL()+"/healthz", nil); res.StatusCode != http.StatusOK {
		t.Errorf("after the renewal: %s", res.Status)
	}

	browser := with(ca)
	res = fetch(t, browser, http.MethodGet, plain+"/acme/box?tab=drift", http.Header{"Host": {"evil.example"}})
	if res.StatusCode != http.StatusPermanentRedirect || res.Header.Get("Location") != s.URL()+"/acme/box?tab=drift" {
		t.Errorf("the redirect is %s to %s", res.Status, res.Header.Get("Location"))
	}
	res = fetch(t, browser, http.MethodGet, plain+"//evil.example/", nil)
	if to := res.Header.Get("Location"); !strings.HasPrefix(to, s.URL()+"/") {
		t.Errorf("a path with two slashes is redirected to %s", to)
	}
	for name, res := range map[string]*http.Response{
		"a POST":               fetch(t, browser, http.MethodPost, plain+"/api/user", nil),
		"a request with token": fetch(t, browser, http.MethodGet, plain+"/api/user", http.Header{"Authorization": {"token pul-1"}}),
	} {
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s without TLS: %s", name, res.Status)
		}
	}
}

// TestRequestTargets sends requests whose target is no path, and whose body never comes. The server answers at once, and
// redirects none of them.
func TestRequestTargets(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	ca := must.Get(testcert.NewAuthority("this year"))(t)
	must.OK(t, testcert.Write(must.Get(ca.Issue(&x509.Certificate{}, "127.0.0.1"))(t), cert, key))
	c := must.Get(configWith(t, dir, map[string]string{"tls_cert_file": cert, "tls_key_file": key, "redirect_listen": "127.0.0.1:0"}))(t)
	s := must.Get(New(t.Context(), c, "v1", storetest.Log(), io.Discard))(t)
	plain, secure := s.redirects.Addr().String(), s.listener.Addr().String()
	stop := run(t, s)
	defer func() { must.OK(t, stop()) }()
	for name, dial := range map[string]func() (net.Conn, error){
		"redirect": func() (net.Conn, error) { return (&net.Dialer{}).DialContext(t.Context(), "tcp", plain) },
		"TLS": func() (net.Conn, error) {
			return (&tls.Dialer{Config: &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}}).DialContext(t.Context(), "tcp", secure)
		},
	} {
		for _, target := range []string{"OPTIONS *", "GET http:.evil.example/x", "GET http:@evil.example/x", "POST *"} {
			conn := must.Get(dial())(t)
			must.Get(io.WriteString(conn, target+" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n"))(t)
			answer := must.Get(io.ReadAll(conn))(t)
			if !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") || strings.Contains(string(answer), "Location:") {
				t.Errorf("%s: %s: %s", name, target, answer)
			}
			_ = conn.Close()
		}
	}
}

// TestUnixSocket listens on a socket that an ended server has left, behind a proxy that states the clients' addresses.
func TestUnixSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "http.sock")
	left := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: path}))(t)
	left.SetUnlinkOnClose(false)
	must.OK(t, left.Close())

	log, logged := logtest.NewNullLogger()
	log.SetLevel(logrus.DebugLevel)
	c := must.Get(configWith(t, dir, map[string]string{
		"listen": "unix:" + path, "external_url": "https://deployments.example.com", "client_address": "x-forwarded-for", "trusted_proxies": "unix",
	}))(t)
	s := must.Get(New(t.Context(), c, "v1", logrus.NewEntry(log), io.Discard))(t)
	if info := must.Get(os.Stat(path))(t); info.Mode().Perm() != 0o660 {
		t.Errorf("the socket has mode %v", info.Mode())
	}
	stop := run(t, s)
	t.Chdir(t.TempDir()) // where the client's end gets a name that looks like an address
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{LocalAddr: &net.UnixAddr{Name: "198.51.100.1:80", Net: "unix"}}).DialContext(ctx, "unix", path)
	}}}
	res := fetch(t, client, http.MethodGet, "http://server/api/user", http.Header{"X-Forwarded-For": {"198.51.100.1, 203.0.113.9"}})
	if res.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %s", res.Status)
	}
	other := must.Get(configWith(t, t.TempDir(), map[string]string{"listen": "unix:" + path, "external_url": "https://a.example.com"}))(t)
	if _, err := New(t.Context(), other, "v1", storetest.Log(), io.Discard); err == nil || !strings.Contains(err.Error(), "another server is using it") {
		t.Errorf("a second server on the same socket: %v", err)
	}
	must.OK(t, stop())
	var remote any
	for _, e := range logged.AllEntries() {
		if e.Data["path"] == "/api/user" {
			remote = e.Data["remote"]
		}
	}
	if remote != "203.0.113.9" {
		t.Errorf("the access log has the address %v", remote)
	}
}

// TestStalledHTTP2 requests pages over HTTP/2 and reads none, nor anything else. The server ends the connection.
func TestStalledHTTP2(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	ca := must.Get(testcert.NewAuthority("authority"))(t)
	must.OK(t, testcert.Write(must.Get(ca.Issue(&x509.Certificate{}, "127.0.0.1"))(t), cert, key))
	c := must.Get(configWith(t, dir, map[string]string{"tls_cert_file": cert, "tls_key_file": key}))(t)
	s := must.Get(New(t.Context(), c, "v1", storetest.Log(), io.Discard))(t)
	if s.http.HTTP2.WriteByteTimeout == 0 {
		t.Fatal("writes of HTTP/2 have no limit")
	}
	s.http.HTTP2.WriteByteTimeout = time.Second
	ended := make(chan struct{})
	before := s.http.ConnState
	s.http.ConnState = func(c net.Conn, state http.ConnState) {
		before(c, state)
		if state == http.StateClosed {
			close(ended)
		}
	}
	stop := run(t, s)
	defer func() { must.OK(t, stop()) }()

	dialer := tls.Dialer{Config: &tls.Config{RootCAs: ca.Pool(), NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}}
	conn := must.Get(dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.URL(), "https://")))(t)
	defer conn.Close()
	_ = must.Get(io.WriteString(conn, http2.ClientPreface))(t)
	framer := http2.NewFramer(conn, nil)
	const window = 1<<31 - 1
	must.OK(t, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
	must.OK(t, framer.WriteWindowUpdate(0, window-1<<16))
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	must.OK(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	for stream := uint32(1); stream < 200; stream += 2 {
		block.Reset()
		for _, f := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "127.0.0.1"}, {Name: ":path", Value: "/api/openapi/pulumi-spec.json"}} {
			must.OK(t, encoder.WriteField(f))
		}
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}); err != nil {
			break // the server has already ended the connection
		}
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the connection is still open")
	}
}
