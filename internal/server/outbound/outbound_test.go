package outbound

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/testcert"

	"workflowagent/internal/dev/must"
)

func authority(t *testing.T) *testcert.Authority {
	t.Helper()
	return must.Get(testcert.NewAuthority(rand.Text()))(t)
}

func serve(t *testing.T, cert *tls.Certificate, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if cert == nil {
		s.Start()
	} else {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{*cert}}
		s.StartTLS()
	}
	t.Cleanup(s.Close)
	return s.URL
}

func hello(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }

const loopback = "127.0.0.1"

func TestTrust(t *testing.T) {
	known, private := authority(t), authority(t)
	trusted, inHouse := must.Get(known.Issue(&x509.Certificate{}, loopback))(t), must.Get(private.Issue(&x509.Certificate{}, loopback))(t)
	misnamed := must.Get(private.Issue(&x509.Certificate{}, "10.0.0.1"))(t)
	expired := must.Get(private.Issue(&x509.Certificate{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}, loopback))(t)
	client := &Client{Roots: known.Pool(), Reach: Reach{Internal: thisMachine}}
	colons := func(s string) string {
		var parts []string
		for i := 0; i < len(s); i += 2 {
			parts = append(parts, strings.ToUpper(s[i:i+2]))
		}
		return strings.Join(parts, ":")
	}
	for _, tt := range []struct {
		name        string
		cert        tls.Certificate
		thumbprints []string
		ok          bool
	}{
		{"a known authority", trusted, nil, true},
		{"a known authority after a rotation", trusted, []string{Thumbprint(inHouse.Leaf)}, true},
		{"an unknown authority", inHouse, nil, false},
		{"an unknown authority, thumbprint of another certificate", inHouse, []string{Thumbprint(trusted.Leaf)}, false},
		{"thumbprint of the certificate", inHouse, []string{Thumbprint(inHouse.Leaf)}, true},
		{"as openssl writes it", inHouse, []string{colons(Thumbprint(inHouse.Leaf))}, true},
		{"thumbprint of its authority", inHouse, []string{"junk", Thumbprint(private.Cert)}, true},
		{"thumbprint of a certificate for another host", misnamed, []string{Thumbprint(misnamed.Leaf)}, false},
		{"thumbprint of an expired certificate", expired, []string{Thumbprint(expired.Leaf)}, false},
		{"thumbprint of the authority, but the certificate expired", expired, []string{Thumbprint(private.Cert)}, false},
		{
			"thumbprint of a certificate outside the chain",
			tls.Certificate{Certificate: append(inHouse.Certificate, trusted.Leaf.Raw), PrivateKey: inHouse.PrivateKey, Leaf: inHouse.Leaf},
			[]string{Thumbprint(trusted.Leaf)},
			false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			doc, err := client.Get(t.Context(), serve(t, &tt.cert, hello), tt.thumbprints)
			if (err == nil) != tt.ok {
				t.Fatalf("%q, %v", doc.Body, err)
			}
			if tt.ok && (string(doc.Body) != "hello" || doc.Thumbprint != Thumbprint(tt.cert.Leaf)) {
				t.Errorf("%q with thumbprint %s", doc.Body, doc.Thumbprint)
			}
			if !tt.ok && !strings.Contains(err.Error(), "not trusted") {
				t.Errorf("the error does not state the cause: %v", err)
			}
		})
	}
}

func TestAnswersThatAreRefused(t *testing.T) {
	elsewhere := serve(t, nil, func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") })
	for want, h := range map[string]http.HandlerFunc{
		"status 302": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere, http.StatusFound) },
		"status 404": http.NotFound,
		"more than 1048576 bytes": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, strings.Repeat("x", maxBytes+1))
		},
		"status 500": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			io.WriteString(w, "hush")
		},
		"the request to": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		_, err := (&Client{Reach: Reach{Internal: thisMachine}}).Get(t.Context(), serve(t, nil, h), nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	doc, err := (&Client{Reach: Reach{Internal: thisMachine}}).Get(t.Context(), serve(t, nil, hello)+"/keys?p=1", nil)
	if err != nil || string(doc.Body) != "hello" || doc.Thumbprint != "" {
		t.Errorf("plain HTTP on this machine: %+v, %v", doc, err)
	}
}

func TestCheckBase(t *testing.T) {
	for address, ok := range map[string]bool{
		"https://issuer.example.com":      true,
		"https://issuer.example.com/a/b/": true,
		"https://10.0.0.7:8443":           true,
		"http://127.0.0.1:99":             true,
		"http://localhost":                true,
		"http://[::1]:99/x":               true,
		"http://issuer.example.com":       false,
		"http://localhost.example.com":    false,
		"http://10.0.0.7":                 false,
		"ftp://issuer.example.com":        false,
		"file:///etc/passwd":              false,
		"https://":                        false,
		"https://:443":                    false,
		"https://u:p@issuer.example.com":  false,
		"https://issuer.example.com?x":    false,
		"https://issuer.example.com/?":    false,
		"https://issuer.example.com#x":    false,
		"issuer.example.com":              false,
		"":                                false,
		"https://a b":                     false,
	} {
		if err := CheckBase(address); (err == nil) != ok {
			t.Errorf("CheckBase(%q) = %v", address, err)
		}
	}
}

func TestForbiddenAddresses(t *testing.T) {
	for address, ok := range map[string]bool{
		"1.2.3.4:443": true, "10.0.0.1:443": true, "127.0.0.1:80": true, "[::1]:80": true, "[fd00::1]:443": true,
		"169.254.169.254:80": false, "[::ffff:169.254.169.254]:80": false, "[fe80::1%eth0]:443": false,
		"[fd00:ec2::254]:80": false, "0.0.0.0:80": false, "[::]:80": false, "224.0.0.1:80": false,
		"255.255.255.255:80": false, "[ff02::1]:80": false, "name:80": false,
	} {
		if err := checkAddress(address); (err == nil) != ok {
			t.Errorf("checkAddress(%q) = %v", address, err)
		}
	}
	for _, address := range []string{"https://169.254.169.254/latest", "https://[fd00:ec2::254]/latest"} {
		_, err := new(Client).Get(t.Context(), address, nil)
		if err == nil || !strings.Contains(err.Error(), "cannot be called") {
			t.Errorf("the address of a cloud's metadata: %v", err)
		}
	}
	// A name can also resolve to the address; the dialer detects it.
	transport := new(Client).transport("metadata.example.com", nil, checkAddress)
	if _, err := transport.DialContext(t.Context(), "tcp", "169.254.169.254:443"); !errors.Is(err, errForbiddenAddress) {
		t.Errorf("dialing the address of a cloud's metadata: %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	if _, err := new(Client).Get(t.Context(), "http://"+address, nil); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("no server listens: %v", err)
	}
}
