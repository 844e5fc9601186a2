package outbound

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

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
	port := open.URL[strings.LastIndexByte(open.URL, ':'):]
	hosts := []string{strings.TrimPrefix(open.URL, "https://"), "localhost" + port, closed.Addr().String(), "missing.invalid:443", "169.254.169.254:443", "10.255.0.1:443"}
	for name, call := range map[string]func(ctx context.Context, host string) error{
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
		"ssh": func(ctx context.Context, host string) error {
			conn, err := Dial(ctx, host, Reach{})
			if err == nil {
				conn.Close()
			}
			return err
		},
	} {
		for _, host := range hosts {
			err := call(t.Context(), host)
			if err == nil || strings.ReplaceAll(err.Error(), host, "HOST") != "HOST cannot be called: "+errUnreachable.Error() {
				t.Errorf("%s: %s: %v", name, host, err)
			}
		}
	}
	if n := dialed.Load(); n != 0 {
		t.Errorf("the server dialed %d times", n)
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
	if _, err := c.Get(KeepHost(t.Context(), "https://127.0.0.1:1"), s.URL, nil); err == nil {
		t.Error("the server called another port of the older host")
	}
	if _, err := c.Get(t.Context(), s.URL, nil); err == nil {
		t.Error("the server called a host that is not public")
	}
}
