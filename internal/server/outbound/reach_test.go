package outbound

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/oauth2"
)

// ways contains the ways in which an administrator of an organization can make the server call an https
// server.
var ways = map[string]func(ctx context.Context, host string) error{
	"issuer": func(ctx context.Context, host string) error {
		_, err := new(Client).Get(ctx, "https://"+host, nil)
		return err
	},
	"webhook": func(ctx context.Context, host string) error {
		_, err := new(Client).Post(ctx, "https://"+host, nil, nil)
		return err
	},
	"forge": func(ctx context.Context, host string) error {
		p, err := NewPeer("https://"+host, "", Reach{})
		if err == nil {
			_, err = p.Do(ctx, Call{Method: http.MethodGet, URL: "https://" + host + "/"})
		}
		return err
	},
	"library": func(ctx context.Context, host string) error {
		client, _ := new(Client).Context(ctx).Value(oauth2.HTTPClient).(*http.Client)
		res, err := client.Get("https://" + host)
		if err == nil {
			res.Body.Close()
			return nil
		}
		return errors.Unwrap(err)
	},
}

// TestReach calls this machine, which is not public, in each way in which an administrator can choose
// the address. An open port, a closed port, a missing name and a cloud's credential service have one
// error, and nothing is dialed.
func TestReach(t *testing.T) {
	var dialed atomic.Int64
	open := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	open.Config.ConnState = func(net.Conn, http.ConnState) { dialed.Add(1) }
	open.StartTLS()
	defer open.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	resolve(t, map[string][]string{
		"internal.test": {"127.0.0.1"}, "mapped.test": {"::ffff:127.0.0.1"}, "any.test": {"0.0.0.0"}, "mixed.test": {"127.0.0.1", "0.0.0.0"},
	})
	port := open.URL[strings.LastIndexByte(open.URL, ':'):]
	hosts := []string{
		strings.TrimPrefix(open.URL, "https://"), "localhost" + port, "[::ffff:127.0.0.1]" + port, "0.0.0.0" + port, "127.1" + port,
		"internal.test" + port, "mapped.test" + port, "any.test" + port, "mixed.test" + port,
		closed.Addr().String(), "missing.test:443", "169.254.169.254:443", "10.255.0.1:443",
	}
	all := maps.Clone(ways)
	all["ssh"] = func(ctx context.Context, host string) error {
		conn, err := Dial(ctx, host, Reach{})
		if err == nil {
			conn.Close()
		}
		return err
	}
	for way, call := range all {
		for _, host := range hosts {
			err := call(t.Context(), host)
			if err == nil || strings.ReplaceAll(err.Error(), host, "HOST") != "HOST cannot be called: "+errUnreachable.Error() {
				t.Errorf("%s: %s: %v", way, host, err)
			}
		}
	}
	if n := dialed.Load(); n != 0 {
		t.Errorf("the server dialed %d times", n)
	}
}

// TestRedirectsAreNotFollowed calls a permitted server that redirects to one that is permitted too, so
// that only the rule for redirects prevents the second call.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var strayed atomic.Int64
	elsewhere := serve(t, nil, func(http.ResponseWriter, *http.Request) { strayed.Add(1) })
	c := &Client{Reach: Reach{Internal: thisMachine}}
	for _, status := range []int{301, 302, 303, 307, 308} {
		address := serve(t, nil, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere, status) })
		_, _ = c.Get(t.Context(), address, nil)
		_, _ = c.Post(t.Context(), address, nil, []byte("{}"))
		p := newPeer(t, address, "")
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			_, _ = p.Do(t.Context(), Call{Method: method, URL: address, Body: []byte("{}")})
		}
		client, _ := c.Context(t.Context()).Value(oauth2.HTTPClient).(*http.Client)
		if res, err := client.Get(address); err != nil || res.StatusCode != status {
			t.Errorf("a library: %v", err)
		} else {
			res.Body.Close()
		}
	}
	if n := strayed.Load(); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

// TestReachOfOlderHosts calls the host that an issuer had before the rule, and no other one.
func TestReachOfOlderHosts(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	transport, ok := s.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatal("the client has another transport")
	}
	c := &Client{Roots: transport.TLSClientConfig.RootCAs}
	if _, err := c.Get(KeepHost(t.Context(), s.URL), s.URL+"/keys", nil); err != nil {
		t.Errorf("the older host: %v", err)
	}
	for _, other := range []string{"https://127.0.0.1:1", strings.Replace(s.URL, "127.0.0.1", "localhost", 1), strings.Replace(s.URL, "https", "http", 1), ""} {
		if _, err := c.Get(KeepHost(t.Context(), other), s.URL, nil); err == nil {
			t.Errorf("the server called another origin than %q", other)
		}
	}
	if _, err := c.Get(t.Context(), s.URL, nil); err == nil {
		t.Error("the server called a host that is not public")
	}
}
