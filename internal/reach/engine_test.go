package reach

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEngines(t *testing.T) {
	engine := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/_ping" {
			w.Header().Set("Api-Version", "1.50")
		}
	})
	dir, err := os.MkdirTemp("", "wfe") // short enough for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "docker.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	onSocket := &httptest.Server{Listener: listener, Config: &http.Server{Handler: engine}}
	onSocket.Start()
	defer onSocket.Close()
	plain, secure := httptest.NewServer(engine), httptest.NewTLSServer(engine)
	defer plain.Close()
	defer secure.Close()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer other.Close()
	tcp := func(s *httptest.Server) string { return "tcp://" + s.Listener.Addr().String() }
	want := []string{"unix://" + socket, tcp(plain), tcp(secure)}
	got := Engines(t.Context(), append([]string{tcp(other), "unix://" + dir + "/missing", "tcp://127.0.0.1:1", "ssh://x", "nonsense"}, want...))
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

func TestDefaultGateway(t *testing.T) {
	table := "Iface\tDestination\tGateway \tFlags\n" +
		"eth0\t000011AC\t00000000\t0001\n" +
		"eth0\t00000000\t010011AC\t0003\n"
	if got, ok := gatewayOf(table); !ok || got != "172.17.0.1" {
		t.Errorf("the gateway is %q, %v", got, ok)
	}
	if got, ok := gatewayOf(strings.Split(table, "eth0\t00000000")[0]); ok {
		t.Errorf("a table without a default has the gateway %q", got)
	}
}
