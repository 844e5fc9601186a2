package clientaddr

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
)

func proxies(t *testing.T, text string) Proxies {
	t.Helper()
	var p Proxies
	if err := p.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestForgedHeaders(t *testing.T) {
	const (
		proxy  = "10.1.2.3:4711"
		client = "203.0.113.9"
		forged = "198.51.100.1"
		socket = "@"
	)
	trusted := proxies(t, "10.0.0.0/8, 2001:db8::1, unix")
	for name, test := range map[string]struct {
		source string
		peer   string
		header http.Header
		want   string
	}{
		"a client without a proxy":                        {XForwardedFor, client + ":1", nil, client + ":1"},
		"a client forges the header":                      {XForwardedFor, client + ":1", http.Header{"X-Forwarded-For": {forged}}, client + ":1"},
		"a client forges it through a proxy":              {XForwardedFor, proxy, http.Header{"X-Forwarded-For": {forged + ", " + client}}, client + ":0"},
		"two header lines":                                {XForwardedFor, proxy, http.Header{"X-Forwarded-For": {forged, client}}, client + ":0"},
		"two proxies":                                     {XForwardedFor, proxy, http.Header{"X-Forwarded-For": {forged + "," + client + ",10.9.9.9"}}, client + ":0"},
		"the proxy forwards nothing":                      {XForwardedFor, proxy, nil, proxy},
		"only proxies":                                    {XForwardedFor, proxy, http.Header{"X-Forwarded-For": {"10.9.9.9, 10.8.8.8"}}, proxy},
		"malformed last entry":                            {XForwardedFor, proxy, http.Header{"X-Forwarded-For": {client + ", unknown"}}, proxy},
		"empty last entry":                                {XForwardedFor, proxy, http.Header{"X-Forwarded-For": {client + ","}}, proxy},
		"address with a port":                             {XForwardedFor, proxy, http.Header{"X-Forwarded-For": {client + ":5555"}}, client + ":0"},
		"the other header is ignored":                     {XForwardedFor, proxy, http.Header{"Forwarded": {"for=" + forged}, "X-Real-Ip": {forged}}, proxy},
		"mapped address":                                  {XForwardedFor, proxy, http.Header{"X-Forwarded-For": {"::ffff:" + client}}, client + ":0"},
		"mapped address of a proxy":                       {XForwardedFor, "[::ffff:10.1.2.3]:1", http.Header{"X-Forwarded-For": {client}}, client + ":0"},
		"IPv6":                                            {XForwardedFor, "[2001:db8::1]:1", http.Header{"X-Forwarded-For": {"2001:db8::2%eth0"}}, "[2001:db8::2]:0"},
		"neighbour of a proxy":                            {XForwardedFor, "[2001:db8::3]:1", http.Header{"X-Forwarded-For": {forged}}, "[2001:db8::3]:1"},
		"unix socket":                                     {XForwardedFor, socket, http.Header{"X-Forwarded-For": {client}}, client + ":0"},
		"IPv6 with a port":                                {XForwardedFor, proxy, http.Header{"X-Forwarded-For": {forged + ", [2001:db8::2]:443"}}, "[2001:db8::2]:0"},
		"IPv6 proxy in the header":                        {XForwardedFor, "[2001:db8::1]:1", http.Header{"X-Forwarded-For": {forged + ", " + client + ", 2001:DB8:0::1"}}, client + ":0"},
		"three header lines":                              {XForwardedFor, proxy, http.Header{"X-Forwarded-For": {forged, client, "10.9.9.9"}}, client + ":0"},
		"an empty last line":                              {XForwardedFor, proxy, http.Header{"X-Forwarded-For": {client, ""}}, proxy},
		"both headers, X-Forwarded-For counts":            {XForwardedFor, proxy, http.Header{"X-Forwarded-For": {client}, "Forwarded": {"for=" + forged}}, client + ":0"},
		"both headers, Forwarded counts":                  {Forwarded, proxy, http.Header{"X-Forwarded-For": {forged}, "Forwarded": {"for=" + client}}, client + ":0"},
		"two Forwarded lines":                             {Forwarded, proxy, http.Header{"Forwarded": {"for=" + forged, "for=" + client + ";proto=https"}}, client + ":0"},
		"Forwarded, two proxies":                          {Forwarded, proxy, http.Header{"Forwarded": {"for=" + forged + ", for=" + client + ", for=10.9.9.9"}}, client + ":0"},
		"Forwarded with two for":                          {Forwarded, proxy, http.Header{"Forwarded": {"for=" + forged + ";for=" + client}}, proxy},
		"Forwarded with a bare IPv6":                      {Forwarded, proxy, http.Header{"Forwarded": {`for="2001:db8::2"`}}, "[2001:db8::2]:0"},
		"Forwarded without for":                           {Forwarded, proxy, http.Header{"Forwarded": {"for=" + forged + ", proto=https"}}, proxy},
		"Forwarded on a unix socket":                      {Forwarded, socket, http.Header{"Forwarded": {"for=" + client}}, client + ":0"},
		"PROXY protocol on a unix socket ignores headers": {ProxyProtocol, socket, http.Header{"X-Forwarded-For": {forged}}, socket},
		"Forwarded":                                       {Forwarded, proxy, http.Header{"Forwarded": {`for=` + forged + `, for="` + client + `:80";proto=https;by=10.1.2.3`}}, client + ":0"},
		"Forwarded with IPv6":                             {Forwarded, proxy, http.Header{"Forwarded": {`For="[2001:db8::2]:80"`}}, "[2001:db8::2]:0"},
		"Forwarded with an open quote":                    {Forwarded, proxy, http.Header{"Forwarded": {`for="` + forged + `, for=` + client}}, proxy},
		"Forwarded with an escaped quote":                 {Forwarded, proxy, http.Header{"Forwarded": {`host="a\",for=` + forged + `;x";for=` + client}}, proxy},
		"Forwarded with a forged host":                    {Forwarded, proxy, http.Header{"Forwarded": {`proto=https;host="a,for=` + forged + `;x";for=` + client}}, proxy},
		"Forwarded with a host":                           {Forwarded, proxy, http.Header{"Forwarded": {`proto=https;host="a:443";for=` + client}}, client + ":0"},
		"Forwarded, hidden client":                        {Forwarded, proxy, http.Header{"Forwarded": {`for=` + forged + `, for=_hidden`}}, proxy},
		"Forwarded ignores X-Forwarded-For":               {Forwarded, proxy, http.Header{"X-Forwarded-For": {forged}}, proxy},
		"a client forges Forwarded":                       {Forwarded, client + ":1", http.Header{"Forwarded": {"for=" + forged}}, client + ":1"},
		"connection ignores both":                         {Connection, proxy, http.Header{"X-Forwarded-For": {forged}, "Forwarded": {"for=" + forged}}, proxy},
		"PROXY protocol ignores both headers":             {ProxyProtocol, proxy, http.Header{"X-Forwarded-For": {forged}, "Forwarded": {"for=" + forged}}, proxy},
	} {
		var got string
		handler := Trust{test.source, trusted}.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.RemoteAddr }))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr, r.Header = test.peer, test.header
		handler.ServeHTTP(httptest.NewRecorder(), r)
		if got != test.want {
			t.Errorf("%s: the client is %s, want %s", name, got, test.want)
		}
	}
	var got string
	Trust{XForwardedFor, proxies(t, "10.0.0.0/8")}.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.RemoteAddr })).
		ServeHTTP(nil, &http.Request{RemoteAddr: socket, Header: http.Header{"X-Forwarded-For": {forged}}})
	if got != socket {
		t.Errorf("a process at the unix socket, which is not trusted, has the address %s", got)
	}
}

// TestForgedProxyHeaders sends PROXY headers to a listener, from a proxy that is trusted and from a client that is not.
func TestForgedProxyHeaders(t *testing.T) {
	const request = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-Forwarded-For: 198.51.100.1\r\n\r\n"
	for name, test := range map[string]struct {
		trusted string
		begin   string
		want    string // the client's address, or "" for a closed connection
	}{
		"version 1":                 {"127.0.0.1", "PROXY TCP4 203.0.113.9 10.1.2.3 5555 443\r\n", "203.0.113.9:5555"},
		"version 2":                 {"127.0.0.1", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xcb\x00\x71\x09\x0a\x01\x02\x03\x15\xb3\x01\xbb", "203.0.113.9:5555"},
		"the balancer's own check":  {"127.0.0.1", "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00", "127.0.0.1"},
		"IPv6":                      {"127.0.0.1", "PROXY TCP6 2001:db8::2 2001:db8::1 5555 443\r\n", "[2001:db8::2]:5555"},
		"a mapped address":          {"127.0.0.1", "PROXY TCP6 ::ffff:203.0.113.9 ::ffff:10.1.2.3 5555 443\r\n", "203.0.113.9:5555"},
		"an unknown address":        {"127.0.0.1", "PROXY UNKNOWN 198.51.100.1 10.1.2.3 5555 443\r\n", "127.0.0.1"},
		"two headers":               {"127.0.0.1", "PROXY TCP4 203.0.113.9 10.1.2.3 5555 443\r\nPROXY TCP4 198.51.100.1 10.1.2.3 5555 443\r\n", ""},
		"two addresses":             {"127.0.0.1", "PROXY TCP4 203.0.113.9 10.1.2.3 5555 443 198.51.100.1\r\n", ""},
		"an address in hexadecimal": {"127.0.0.1", "PROXY TCP4 0xc6.51.100.1 10.1.2.3 5555 443\r\n", ""},
		"a unix socket's name":      {"127.0.0.1", "\r\n\r\n\x00\r\nQUIT\n\x21\x31\x00\xd8198.51.100.1:80" + strings.Repeat("\x00", 216-15), ""},
		"an unknown version":        {"127.0.0.1", "\r\n\r\n\x00\r\nQUIT\n\x31\x11\x00\x0c\xcb\x00\x71\x09\x0a\x01\x02\x03\x15\xb3\x01\xbb", ""},
		"no header":                 {"127.0.0.1", "", ""},
		"truncated":                 {"127.0.0.1", "PROXY TCP4 203.0.113.9\r\n", ""},
		"forged by a client":        {"10.0.0.0/8", "PROXY TCP4 203.0.113.9 10.1.2.3 5555 443\r\n", ""},
		"a client without header":   {"10.0.0.0/8", "", ""},
		"a program of this machine": {"10.0.0.0/8", "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00", "127.0.0.1"},
	} {
		plain, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		trust := Trust{ProxyProtocol, proxies(t, test.trusted)}
		server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: trust.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.RemoteAddr)
		}))}
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = server.Serve(trust.Listener(plain, storetest.Log())) // until it is closed
		}()
		got := ""
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", plain.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, test.begin+request); err == nil {
			if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
				if body, _ := io.ReadAll(res.Body); res.StatusCode == http.StatusOK {
					got = string(body)
				}
				_ = res.Body.Close()
			}
		}
		if !strings.HasPrefix(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: the client is %q, want %q", name, got, test.want)
		}
		_, _ = conn.Close(), server.Close()
		<-served
	}
}

func TestProxiesOfSettings(t *testing.T) {
	for text, want := range map[string]string{
		"":                  "entry 1 is no proxy",
		"10.0.0.1,":         "entry 2 is no proxy",
		"10.0.0.1 10.0.0.2": "entry 1 is no proxy",
		"proxy.example.com": "entry 1 is no proxy",
		"fe80::1%eth0":      "entry 1 is no proxy",
		"0.0.0.0/0":         "entry 1 trusts every client",
		"10.0.0.1, ::/0":    "entry 2 trusts every client",
		"::ffff:10.0.0.1":   "write it as 192.168.1.20",
	} {
		var p Proxies
		if err := p.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for _, trust := range []Trust{{XForwardedFor, Proxies{}}, {ProxyProtocol, Proxies{}}, {Connection, proxies(t, "unix")}} {
		if trust.Check() == nil {
			t.Errorf("%+v is accepted", trust)
		}
	}
	for _, trust := range []Trust{{Connection, Proxies{}}, {Forwarded, proxies(t, "10.0.0.1")}} {
		if err := trust.Check(); err != nil {
			t.Errorf("%+v: %v", trust, err)
		}
	}
}
