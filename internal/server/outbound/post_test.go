package outbound

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/oauth2"
)

var thisMachine = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// TestCheckReceiver checks which addresses a receiver may have.
func TestCheckReceiver(t *testing.T) {
	c := &Client{Reach: Reach{Internal: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("169.254.0.0/16")}}}
	for _, test := range []struct {
		address     string
		https, http bool
	}{
		{"93.184.216.34:443", true, false},
		{"[2606:4700::1]:443", true, false},
		{"10.1.2.3:80", true, true},
		{"[::ffff:10.1.2.3]:80", true, true},
		{"10.2.0.1:443", false, false},
		{"127.0.0.1:443", false, false},
		{"[::1]:443", false, false},
		{"172.16.0.1:443", false, false},
		{"192.168.0.1:443", false, false},
		{"100.64.0.1:443", false, false},
		{"169.254.169.254:80", false, false}, // even if a network contains it
		{"[fd00:ec2::254]:80", false, false},
		{"[fe80::1%eth0]:443", false, false},
		{"[fd12::1]:443", false, false},
		{"[::ffff:127.0.0.1]:443", false, false},
		{"[64:ff9b::7f00:1]:443", false, false},
		{"[2002:7f00:1::]:443", false, false},
		{"[::127.0.0.1]:443", false, false},
		{"0.0.0.0:443", false, false},
		{"224.0.0.1:443", false, false},
		{"[ff02::1]:443", false, false},
		{"255.255.255.255:443", false, false},
		{"240.0.0.1:443", false, false},
		{"name:443", false, false},
	} {
		for scheme, want := range map[string]bool{"https": test.https, "http": test.http} {
			if err := c.check(scheme == "https", test.address); (err == nil) != want {
				t.Errorf("%s to %s: %v, want permitted: %t", scheme, test.address, err, want)
			}
		}
	}
}

// TestCheckReceiverOfURLs checks the addresses that a new webhook may have.
func TestCheckReceiverOfURLs(t *testing.T) {
	c := &Client{Reach: Reach{Internal: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}}
	for address, want := range map[string]bool{
		"https://example.com/hook":            true,
		"https://93.184.216.34/hook":          true,
		"http://10.1.2.3:8080/":               true,
		"https://intranet.example.com/":       true, // resolved when the server sends
		"https://10.2.0.1/":                   false,
		"https://127.0.0.1:8443/":             false,
		"https://[::1]/":                      false,
		"https://[::ffff:127.0.0.1]/":         false,
		"https://localhost/":                  false,
		"http://localhost:8080/":              false,
		"https://169.254.169.254/latest/":     false,
		"http://93.184.216.34/":               false,
		"https://user:password@example.com/x": false,
	} {
		if err := c.CheckReceiver(address); (err == nil) != want {
			t.Errorf("%s: %v, want permitted: %t", address, err, want)
		}
	}
	for _, address := range []string{"http://localhost:8080/", "http://127.0.0.1:8080/"} {
		if err := (&Client{Reach: Reach{Internal: thisMachine}}).CheckReceiver(address); err != nil {
			t.Errorf("%s in a permitted network: %v", address, err)
		}
	}
}

// TestPostRevealsNoNames checks that a name of an internal network and a name that does not exist
// have the same error.
func TestPostRevealsNoNames(t *testing.T) {
	resolve(t, nil)
	text := func(host string) string {
		_, err := new(Client).Post(t.Context(), "https://"+host+"/", nil, nil)
		if err == nil {
			t.Fatalf("sending to %s succeeded", host)
		}
		return strings.ReplaceAll(err.Error(), host, "HOST")
	}
	want := text("missing.invalid")
	for _, host := range []string{"localhost", "127.0.0.1", "169.254.169.254", "[::1]"} {
		if got := text(host); got != want {
			t.Errorf("%s: %q, want %q as for a missing name", host, got, want)
		}
	}
}

// TestPostIsConfined sends to names and addresses of this machine, which is not public.
func TestPostIsConfined(t *testing.T) {
	var calls atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	defer s.Close()
	port := s.URL[strings.LastIndexByte(s.URL, ':'):]
	for _, host := range []string{"127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		for _, scheme := range []string{"http", "https"} {
			if a, err := new(Client).Post(t.Context(), scheme+"://"+host+port+"/", nil, nil); err == nil {
				t.Errorf("%s to %s responded %+v, want an error", scheme, host, a)
			}
		}
	}
	if calls.Load() != 0 {
		t.Errorf("the receiver got %d calls", calls.Load())
	}
	if _, err := (&Client{Reach: Reach{Internal: thisMachine}}).Post(t.Context(), "http://localhost"+port, nil, nil); err != nil || calls.Load() != 1 {
		t.Errorf("sending to a permitted network: %v, %d calls", err, calls.Load())
	}
}

// TestPostToHostileReceivers checks that a receiver can neither hold the server nor direct it
// elsewhere.
func TestPostToHostileReceivers(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer other.Close()
	receive := map[string]http.HandlerFunc{
		"endless": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("x", 1<<16)); err != nil {
					return
				}
			}
		},
		"drip": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
			<-r.Context().Done()
		},
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		},
		"silent": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"reset": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			if tcp, ok := conn.(*net.TCPConn); ok {
				tcp.SetLinger(0)
			}
			conn.Close()
		},
		"headers": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", maxHeaders+1)) },
	}
	want := map[string]int{"endless": 200, "drip": 200, "redirect": 307} // of the others there is only an error
	for name, handler := range receive {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// The context of a request whose body is not read does not end with the connection.
			io.Copy(io.Discard, r.Body)
			handler(w, r)
		}))
		// The deadline of the caller stands for that of Post, which is longer.
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		began := time.Now()
		a, err := (&Client{Reach: Reach{Internal: thisMachine}}).Post(ctx, s.URL, nil, []byte("{}"))
		cancel()
		if took := time.Since(began); took > 30*time.Second || a.Status != want[name] || (err == nil) != (want[name] > 0) || len(a.Body) > maxAnswer {
			t.Errorf("%s: status %d with %d bytes and error %v after %v, want status %d", name, a.Status, len(a.Body), err, took, want[name])
		}
		s.CloseClientConnections()
		s.Close()
	}
}

// TestSwitchesOfProtocolEnd calls services that switch to another protocol and then send nothing. Reads
// of such a body ignore every deadline.
func TestSwitchesOfProtocolEnd(t *testing.T) {
	closed := make(chan error, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		_, err = io.Copy(io.Discard, conn)
		closed <- err
	}))
	defer s.Close()
	c := &Client{Reach: Reach{Internal: thisMachine}}
	for name, request := range map[string]func() error{
		"a receiver": func() error {
			_, err := c.Post(t.Context(), s.URL, nil, []byte("{}"))
			return err
		},
		"a peer": func() error {
			_, err := newPeer(t, s.URL, "").Do(t.Context(), Call{Method: "GET", URL: s.URL})
			return err
		},
		"a provider": func() error {
			client, _ := c.Context(t.Context()).Value(oauth2.HTTPClient).(*http.Client)
			res, err := client.Get(s.URL)
			if err == nil {
				res.Body.Close()
			}
			return err
		},
	} {
		if err := request(); err == nil || !strings.Contains(err.Error(), "another protocol") {
			t.Errorf("%s: %v", name, err)
		}
		if err := <-closed; err != nil {
			t.Errorf("%s: the connection stayed open: %v", name, err)
		}
	}
}
