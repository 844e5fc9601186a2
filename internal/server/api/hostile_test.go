package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func (f *fixture) dial() net.Conn {
	f.t.Helper()
	conn, err := net.Dial("tcp", f.server.Listener.Addr().String())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		f.t.Fatal(err)
	}
	return conn
}

// TestStalledClientsAreCutOff holds connections open in every way that costs the client nothing,
// without a token where possible. The server must close them.
func TestStalledClientsAreCutOff(t *testing.T) {
	f := newFixture(t, options{limits: request.Limits{Stall: 500 * time.Millisecond}})
	path := f.stack("dev")
	f.do("POST", path+"/import", state(500)).want(200, nil)
	for _, tt := range []struct{ name, request string }{
		{"body that never comes, no token", "POST /api/user/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"},
		{"body that never comes", "POST " + path + "/import HTTP/1.1\r\nHost: x\r\nAuthorization: token " + f.admin + "\r\nContent-Length: 100\r\n\r\n{"},
		{"chunk that never comes", "POST " + path + "/import HTTP/1.1\r\nHost: x\r\nAuthorization: token " + f.admin + "\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc"},
	} {
		conn := f.dial()
		if _, err := io.WriteString(conn, tt.request); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Errorf("%s: the server keeps the connection: %v", tt.name, err)
		}
	}
	conn := f.dial()
	sent := 0
	for {
		n, err := io.WriteString(conn, "GET "+path+"/export HTTP/1.1\r\nHost: x\r\nAuthorization: token "+f.admin+"\r\n\r\n")
		sent += n
		if ne, ok := err.(net.Error); ok && ne.Timeout() { //nolint:errorlint // what net returns
			t.Fatalf("the server keeps the connection of a client that reads nothing, after %d bytes", sent)
		}
		if err != nil {
			break
		}
	}
}

// TestPatienceBetweenRequests keeps a connection idle between two requests for longer than the
// stall limit. The server must not close it.
func TestPatienceBetweenRequests(t *testing.T) {
	f := newFixture(t, options{limits: request.Limits{Stall: 300 * time.Millisecond}})
	path := f.stack("dev")
	conn := f.dial()
	r := bufio.NewReader(conn)
	for i := range 3 {
		body := fmt.Sprintf(`{"name":"n%d","value":"v"}`, i)
		request := fmt.Sprintf("POST %s/tags HTTP/1.1\r\nHost: x\r\nAuthorization: token %s\r\nContent-Length: %d\r\n\r\n%s", path, f.admin, len(body), body)
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != http.StatusNoContent {
			t.Fatalf("request %d: %v, %v", i, res, err)
		}
		_ = res.Body.Close()
		idle := time.NewTimer(600 * time.Millisecond) // the connection is idle
		<-idle.C
	}
}

// TestLargeUploadsShareTheMemory starts several large uploads at once. The server must reject the
// uploads that exceed its memory, and must continue to serve other requests.
func TestLargeUploadsShareTheMemory(t *testing.T) {
	f := newFixture(t, options{limits: request.Limits{Together: 10 << 20, Patience: 50 * time.Millisecond}})
	path := f.stack("dev")
	head := fmt.Sprintf("POST %s/import HTTP/1.1\r\nHost: x\r\nAuthorization: token %s\r\nContent-Length: 7340032\r\n\r\n", path, f.admin)
	first := f.dial()
	if _, err := io.WriteString(first, head+strings.Repeat(" ", 6<<20)); err != nil {
		t.Fatal(err)
	}
	// Once the server has read the beginning of the first body, it rejects a second one.
	deadline := time.Now().Add(time.Minute)
	for {
		a := f.send(call{Method: "POST", Path: path + "/import", Body: strings.Repeat(" ", 6<<20), Gzip: true})
		if a.Status == http.StatusServiceUnavailable && a.Header.Get("Retry-After") != "" {
			break
		}
		if a.Status != http.StatusBadRequest || time.Now().After(deadline) {
			t.Fatalf("status %d: %s", a.Status, a.Body)
		}
	}
	f.do("GET", path+"/export", nil).want(200, nil) // the server still serves other requests
	_ = first.Close()
	for { // until the first upload's memory is released
		a := f.send(call{Method: "POST", Path: path + "/import", Body: strings.Repeat(" ", 6<<20), Gzip: true})
		if a.Status == http.StatusBadRequest {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("status %d: %s", a.Status, a.Body)
		}
	}
}

// TestOrganizationsShareTheMemory has one organization send as many large states as the server
// accepts while another organization sends its own state. The server must accept the latter.
func TestOrganizationsShareTheMemory(t *testing.T) {
	f := newFixture(t, options{limits: request.Limits{Together: 16 << 20, Patience: 50 * time.Millisecond}})
	now := time.Now()
	rival := store.Organization{ID: identity.NewID(), Name: "rival", CreatedAt: now}
	if err := f.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.InsertOrganization(rival) }); err != nil {
		t.Fatal(err)
	}
	auth := "token " + f.issue(store.Token{Kind: store.OrgToken, OrgID: rival.ID, Name: "o", Admin: true})
	f.send(call{Method: "POST", Path: "/api/stacks/rival/proj", Body: map[string]any{"stackName": "dev"}, Auth: auth}).want(200, nil)
	head := fmt.Sprintf("POST %s/import HTTP/1.1\r\nHost: x\r\nAuthorization: token %s\r\nContent-Length: 7340032\r\n\r\n", f.stack("dev"), f.admin)
	for range 2 {
		if _, err := io.WriteString(f.dial(), head+strings.Repeat(" ", 3<<20)); err != nil {
			t.Fatal(err)
		}
	}
	state := strings.Repeat(" ", 6<<20)
	deadline := time.Now().Add(time.Minute)
	for { // until the server's memory is in use
		a := f.send(call{Method: "POST", Path: "/api/stacks/acme/proj/dev/import", Body: state, Gzip: true})
		if a.Status == http.StatusServiceUnavailable {
			break
		}
		if a.Status != http.StatusBadRequest || time.Now().After(deadline) {
			t.Fatalf("status %d: %s", a.Status, a.Body)
		}
	}
	a := f.send(call{Method: "POST", Path: "/api/stacks/rival/proj/dev/import", Body: state[:3<<20], Gzip: true, Auth: auth})
	if a.Status != http.StatusBadRequest {
		t.Errorf("the upload of another organization: status %d, body %s", a.Status, a.Body)
	}
}

// TestOddMethodsAreOneSeries sends requests with unknown methods. The metrics must contain one
// series for all of them.
func TestOddMethodsAreOneSeries(t *testing.T) {
	f := newFixture(t, options{})
	for i := range 20 {
		f.send(call{Method: fmt.Sprintf("ODD%d", i), Path: "/api/user", Auth: "none"}).want(405, nil)
	}
	metrics := f.metrics()
	if strings.Contains(metrics, "ODD") || !strings.Contains(metrics, `method="other"`) {
		t.Error("the metrics contain the clients' methods")
	}
}

// TestTricklingClientsAreCutOff uses clients that send continuously but too slowly. The server must
// disconnect them.
func TestTricklingClientsAreCutOff(t *testing.T) {
	const stall = 500 * time.Millisecond
	f := newFixture(t, options{limits: request.Limits{Stall: stall, Rate: 1000}})
	path := f.stack("dev")
	conn := f.dial()
	head := fmt.Sprintf("POST %s/import HTTP/1.1\r\nHost: x\r\nAuthorization: token %s\r\nContent-Length: 100000\r\n\r\n{", path, f.admin)
	if _, err := io.WriteString(conn, head); err != nil {
		t.Fatal(err)
	}
	cut := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, conn) // returns when the server closes the connection
		cut <- err
	}()
	began := time.Now()
	tick := time.NewTicker(stall / 10)
	defer tick.Stop()
	for {
		select {
		case <-cut:
			return
		case <-tick.C:
			_, _ = io.WriteString(conn, " ") // fails once the connection is closed
		}
		if time.Since(began) > 100*stall {
			t.Fatalf("the server keeps a client that sends 20 bytes per second, for %v", 100*stall)
		}
	}
}
