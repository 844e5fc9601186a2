package outbound

import (
	"context"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// resolve replaces the name servers of this process for a test. Names that are missing in names do not
// exist.
func resolve(t *testing.T, names map[string][]string) {
	t.Helper()
	resolveWith(t, func(name string) []string { return names[name] })
}

// resolveWith is like [resolve]. find returns the addresses of a name, and is called once for each
// question.
func resolveWith(t *testing.T, find func(name string) []string) {
	t.Helper()
	before := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = before })
	var servers sync.WaitGroup
	t.Cleanup(servers.Wait)
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		servers.Go(func() {
			defer server.Close()
			for answerQuestion(server, find) == nil {
			}
		})
		return client, nil
	}}
}

// answerQuestion answers one question in the format that name servers use on streams.
func answerQuestion(conn net.Conn, find func(name string) []string) error {
	size := make([]byte, 2)
	if _, err := io.ReadFull(conn, size); err != nil {
		return err
	}
	packet := make([]byte, binary.BigEndian.Uint16(size))
	if _, err := io.ReadFull(conn, packet); err != nil {
		return err
	}
	var m dnsmessage.Message
	if err := m.Unpack(packet); err != nil {
		return err
	}
	q := m.Questions[0]
	addresses := find(strings.TrimSuffix(q.Name.String(), "."))
	m = dnsmessage.Message{
		Header:    dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionAvailable: true},
		Questions: m.Questions,
	}
	if len(addresses) == 0 {
		m.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addresses {
		ip := netip.MustParseAddr(a)
		header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
		switch {
		case ip.Is4() && q.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: ip.As4()}})
		case ip.Is6() && q.Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: ip.As16()}})
		}
	}
	body, err := m.Pack()
	if err != nil {
		return err
	}
	_, err = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(body))), body...))
	return err
}

// internalAddresses contains an address of each kind that names of other organizations must not lead to.
var internalAddresses = map[string]string{
	"loopback":                    "127.0.0.1",
	"loopback, IPv6":              "::1",
	"loopback, mapped":            "::ffff:127.0.0.1",
	"loopback, translated":        "64:ff9b::7f00:1",
	"this network":                "0.0.0.0",
	"unspecified, IPv6":           "::",
	"private, 10":                 "10.255.0.1",
	"private, 172":                "172.16.0.1",
	"private, 192":                "192.168.0.1",
	"private, mapped":             "::ffff:10.255.0.1",
	"private, translated":         "64:ff9b::a00:1",
	"private, translated locally": "64:ff9b:1::a00:1",
	"private, 6to4":               "2002:a00:1::",
	"private, Teredo":             "2001::1",
	"private, compatible":         "::10.255.0.1",
	"private, stateless":          "::ffff:0:a00:1",
	"unique local":                "fd12::1",
	"site-local":                  "fec0::1",
	"shared":                      "100.64.0.1",
	"benchmark":                   "198.18.0.1",
	"reserved":                    "240.0.0.1",
	"not allocated":               "4000::1",
	"link-local":                  "169.254.1.1",
	"link-local, IPv6":            "fe80::1",
	"metadata":                    "169.254.169.254",
	"metadata, mapped":            "::ffff:169.254.169.254",
	"metadata, translated":        "64:ff9b::a9fe:a9fe",
	"metadata of AWS, IPv6":       "fd00:ec2::254",
	"metadata of Google, IPv6":    "fd20:ce::254",
	"agent of Azure":              "168.63.129.16",
	"multicast":                   "224.0.0.1",
	"broadcast":                   "255.255.255.255",
}

// TestNamesOfInternalAddresses resolves names to addresses that are not public. The check of each
// address that the dialer tries must fail. Nothing is dialed.
func TestNamesOfInternalAddresses(t *testing.T) {
	public := map[string]string{"public": "93.184.216.34", "public, IPv6": "2606:4700::1", "public, translated": "64:ff9b::5db8:d822"}
	all := maps.Clone(internalAddresses)
	maps.Copy(all, public)
	for kind, address := range all {
		resolve(t, map[string][]string{"name.test": {address}})
		for _, scheme := range []string{"https", "http"} {
			_, permitted := public[kind]
			permitted = permitted && scheme == "https"
			check, tried := Reach{}.dialCheck(&url.URL{Scheme: scheme, Host: "name.test"}), 0
			stop := errors.New("stop")
			transport := new(Client).transport("name.test", nil, func(address string) error {
				tried++
				if err := check(address); (err == nil) != permitted {
					t.Errorf("%s, %s to %s: %v", kind, scheme, address, err)
				}
				return stop
			})
			if _, err := transport.DialContext(t.Context(), "tcp", "name.test:443"); !errors.Is(err, stop) || tried == 0 {
				t.Errorf("%s: %d addresses were tried: %v", kind, tried, err)
			}
		}
	}
}

// TestMixedNames resolves a name to an address that is permitted and one that is not. Only the first is
// dialed, wherever it is in the answer.
func TestMixedNames(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().String()[len("127.0.0.1"):]
	check := Reach{Internal: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}.dialCheck(&url.URL{Scheme: "https", Host: "name.test"})
	for _, answer := range [][]string{{"127.0.0.2", "127.0.0.1"}, {"127.0.0.1", "127.0.0.2"}, {"fd12::1", "127.0.0.1"}, {"0.0.0.0", "127.0.0.1"}} {
		resolve(t, map[string][]string{"name.test": answer})
		var mu sync.Mutex
		var permitted []string
		transport := new(Client).transport("name.test", nil, func(address string) error {
			err := check(address)
			if err == nil {
				mu.Lock()
				permitted = append(permitted, address)
				mu.Unlock()
			}
			return err
		})
		conn, err := transport.DialContext(t.Context(), "tcp", "name.test"+port)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if !slices.Equal(permitted, []string{"127.0.0.1" + port}) {
			t.Errorf("%v: the server dialed %v", answer, permitted)
		}
	}
}

// TestNamesThatChange lets a name lead to another address after the first call, as an attacker's name
// server can.
func TestNamesThatChange(t *testing.T) {
	var calls atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	s.Listener.Close()
	var err error
	if s.Listener, err = net.Listen("tcp4", ":0"); err != nil { // so that all addresses of this machine respond
		t.Fatal(err)
	}
	s.StartTLS()
	defer s.Close()
	address := atomic.Pointer[string]{}
	resolveWith(t, func(string) []string { return []string{*address.Load()} })
	host := "https://example.com:" + s.URL[strings.LastIndexByte(s.URL, ':')+1:] // the name in the certificate
	permitted := Reach{Internal: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	p, err := NewPeer(host, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})), permitted)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for now, want := range map[string]int64{"127.0.0.1": 1, "127.0.0.2": 0, "0.0.0.0": 0, "::ffff:127.0.0.2": 0} {
		calls.Store(0)
		address.Store(&now)
		p.Close() // otherwise the next call uses the connection of the last one
		_, err := p.Do(t.Context(), Call{Method: http.MethodGet, URL: host + "/"})
		if calls.Load() != want || (err == nil) != (want == 1) {
			t.Errorf("%s: %d calls, %v", now, calls.Load(), err)
		}
	}
}
