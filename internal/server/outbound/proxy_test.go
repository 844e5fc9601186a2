package outbound

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// proxyChild is the environment variable of the process that [TestThroughAProxy] starts, because a
// process reads the variables of the proxy only once.
const proxyChild = "OUTBOUND_TEST_PROXY"

// TestThroughAProxy calls names through a proxy, which then dials in place of the server. The server
// checks the addresses that it can resolve, and does not send the proxy requests for internal ones. A
// failure shows neither the proxy's address nor what only the proxy knows.
func TestThroughAProxy(t *testing.T) {
	if os.Getenv(proxyChild) != "" {
		callThroughProxy(t)
		return
	}
	var mu sync.Mutex
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.Host)
		mu.Unlock()
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestThroughAProxy$")
	cmd.Env = append(os.Environ(), proxyChild+"=1", "NO_PROXY=", "no_proxy=")
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
		cmd.Env = append(cmd.Env, name+"="+proxy.URL)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	slices.Sort(asked)
	// An issuer, a webhook, a forge and an identity provider each; and the calls that are permitted.
	want := slices.Concat(
		[]string{"CONNECT kept.test:443"},
		slices.Repeat([]string{"CONNECT public.test:443"}, 4),
		slices.Repeat([]string{"CONNECT unknown.test:443"}, 4),
		[]string{"POST permitted.test"},
	)
	if !slices.Equal(asked, want) {
		t.Errorf("the proxy received\n%s\nwant\n%s", strings.Join(asked, "\n"), strings.Join(want, "\n"))
	}
}

func callThroughProxy(t *testing.T) {
	names := map[string][]string{
		"public.test": {"93.184.216.34"}, "mixed.test": {"93.184.216.34", "10.255.0.1"},
		"kept.test": {"10.255.0.1"}, "permitted.test": {"10.255.0.1"},
	}
	for kind, address := range internalAddresses {
		names[strings.NewReplacer(" ", "-", ",", "").Replace(kind)+".test"] = []string{address}
	}
	resolve(t, names)
	hosts := []string{"unknown.test", "10.255.0.1", "[fd12::1]"}
	for name := range names {
		hosts = append(hosts, name)
	}
	for way, call := range ways {
		for _, host := range hosts {
			err := call(t.Context(), host)
			refused := err != nil && strings.Contains(err.Error(), host+" cannot be called: "+errUnreachable.Error())
			if err == nil || refused != (host != "public.test") {
				t.Errorf("%s, %s: %v", way, host, err)
			}
		}
	}
	if _, err := new(Client).Get(KeepHost(t.Context(), "https://kept.test"), "https://kept.test:443/keys", nil); err == nil || strings.Contains(err.Error(), "cannot be called") {
		t.Errorf("an issuer that keeps its host: %v", err)
	}
	c := &Client{Reach: Reach{Internal: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
	if a, err := c.Post(t.Context(), "http://permitted.test/", nil, nil); err != nil || a.Status != http.StatusBadGateway {
		t.Errorf("an internal network that is permitted: %+v, %v", a, err)
	}
	if _, err := c.Post(t.Context(), "http://unknown.test/", nil, nil); err == nil || !strings.Contains(err.Error(), errUnreachable.Error()) {
		t.Errorf("a missing name without encryption: %v", err)
	}
	synctest.Test(t, slowNameServer)
}

// slowNameServer resolves a name with a name server that does not respond, which must leave time for the
// call.
func slowNameServer(t *testing.T) {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			_, _ = io.Copy(io.Discard, server)
		}()
		return client, nil
	}}
	began := time.Now()
	hidden, err := Reach{}.resolve(t.Context(), &url.URL{Scheme: "https", Host: "slow.test"})
	if took := time.Since(began); !hidden || err != nil || took > maxTime/2 {
		t.Errorf("the resolution took %s: %t, %v", took, hidden, err)
	}
	time.Sleep(time.Minute) // until the resolver gives up
}

// TestErrorsOfProxies checks that an error does not contain the address of a proxy.
func TestErrorsOfProxies(t *testing.T) {
	for _, op := range []string{"proxyconnect", "socks connect"} {
		err := error(&net.OpError{Op: op, Net: "tcp", Err: errors.New("dial tcp 10.255.0.1:3128: connection refused")})
		err = conceal(&url.URL{Host: "public.test"}, err, false, time.Second)
		if err.Error() != "public.test cannot be called: "+errUnreachable.Error() {
			t.Error(err)
		}
	}
}
