package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/store"
)

// TestForgedAddresses signs in with a wrong token, and states other addresses in all ways, to servers with each source of
// addresses, from proxies that they trust or not. Access log and audit log contain the true address.
func TestForgedAddresses(t *testing.T) {
	const (
		client, forged = "203.0.113.9", "198.51.100.1"
		client6        = "2001:db8::9"
		local          = "127.0.0.1"
		header         = "PROXY TCP4 " + client + " 10.1.2.3 5555 443\r\n"
		header6        = "PROXY TCP6 " + client6 + " 2001:db8::1 5555 443\r\n"
	)
	for name, test := range map[string]struct {
		source, trusted string
		onUnix          bool
		begin           string // before the request
		headers         string
		want            string // "" for a closed connection
	}{
		"connection":                    {"connection", "", false, "", "X-Forwarded-For: " + forged + "\r\nForwarded: for=" + forged, local},
		"X-Forwarded-For":               {"x-forwarded-for", local, false, "", "X-Forwarded-For: " + forged + "\r\nX-Forwarded-For: " + client + "\r\nForwarded: for=" + forged, client},
		"X-Forwarded-For, IPv6":         {"x-forwarded-for", local, false, "", "X-Forwarded-For: " + forged + ", [" + client6 + "]:99", client6},
		"X-Forwarded-For of a stranger": {"x-forwarded-for", "10.0.0.0/8", false, "", "X-Forwarded-For: " + forged, local},
		"X-Forwarded-For on a socket":   {"x-forwarded-for", "unix", true, "", "X-Forwarded-For: " + forged + ", " + client, client},
		"Forwarded":                     {"forwarded", local, false, "", "Forwarded: for=" + forged + "\r\nForwarded: for=" + client + "\r\nX-Forwarded-For: " + forged, client},
		"Forwarded, IPv6":               {"forwarded", local, false, "", `Forwarded: for=` + forged + `, for="[` + client6 + `]:99"`, client6},
		"Forwarded of a stranger":       {"forwarded", "10.0.0.0/8", false, "", "Forwarded: for=" + forged, local},
		"PROXY":                         {"proxy-protocol", local, false, header, "X-Forwarded-For: " + forged + "\r\nForwarded: for=" + forged, client},
		"PROXY, IPv6":                   {"proxy-protocol", local, false, header6, "X-Forwarded-For: " + forged, client6},
		"PROXY of a stranger":           {"proxy-protocol", "10.0.0.0/8", false, header, "X: y", ""},
		"PROXY, only in headers":        {"proxy-protocol", local, false, "", "X-Forwarded-For: " + forged, ""},
		"PROXY on a socket":             {"proxy-protocol", "unix", true, header, "X-Forwarded-For: " + forged, client},
		"PROXY where none is expected":  {"x-forwarded-for", local, false, header, "X-Forwarded-For: " + client, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			settings := map[string]string{"client_address": test.source}
			if test.trusted != "" {
				settings["trusted_proxies"] = test.trusted
			}
			if test.onUnix {
				settings["listen"], settings["external_url"] = "unix:"+filepath.Join(dir, "http.sock"), "https://deployments.example.com"
			}
			log, logged := logtest.NewNullLogger()
			log.SetLevel(logrus.DebugLevel)
			s := must.Get(New(t.Context(), must.Get(configWith(t, dir, settings))(t), "v1", logrus.NewEntry(log), io.Discard))(t)
			s.Only()
			addr := s.listener.Addr()
			stop := run(t, s)
			form := url.Values{"token": {"pul-wrong"}}.Encode()
			status := sendText(t, addr, fmt.Sprintf("%sPOST /-/login HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s",
				test.begin, strings.SplitN(s.URL(), "://", 2)[1], test.headers, len(form), form))
			audited := must.Get(store.Read(t.Context(), s.db, func(tx *store.Tx) (list []string, err error) {
				entries, err := tx.AuditEntries(store.AuditFilter{Limit: 100})
				for _, e := range entries {
					if e.Action == "user.sign-in-failed" {
						list = append(list, e.Address)
					}
				}
				return list, err
			}))(t)
			must.OK(t, stop())
			var remotes []any
			for _, e := range logged.AllEntries() {
				if e.Data["path"] == "/-/login" {
					remotes = append(remotes, e.Data["remote"])
				}
			}
			if got := fmt.Sprint(remotes, audited); test.want != "" && got != fmt.Sprintf("[%s] [%s]", test.want, test.want) || test.want == "" && got != "[] []" {
				t.Errorf("status %d; access log and audit log have the addresses %s, want %q", status, got, test.want)
			}
		})
	}
}

// sendText sends a request and returns the status of the response, or 0 if the server closes the connection.
func sendText(t *testing.T, addr net.Addr, text string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn := must.Get((&net.Dialer{}).DialContext(ctx, addr.Network(), addr.String()))(t)
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_, _ = io.WriteString(conn, text) // the server can close the connection before
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// signIn signs the first administrator in with the link of a server's first start, and returns the names and values of
// the cookies.
func signIn(t *testing.T, s *Server, notices string) map[string]string {
	t.Helper()
	link := linkPattern.FindStringSubmatch(notices)
	if link == nil {
		t.Fatalf("the notices are %s", notices)
	}
	res := visit(t, s, http.MethodPost, "/-/login/link", nil, url.Values{"key": {link[2]}})
	cookies := map[string]string{}
	for _, c := range res.Result().Cookies() {
		if c.MaxAge >= 0 {
			cookies[c.Name] = c.Value
		}
	}
	return cookies
}

// visit requests a page of a running server with cookies.
func visit(t *testing.T, s *Server, method, path string, cookies map[string]string, form url.Values) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, s.URL()+path, strings.NewReader(form.Encode()))
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, value := range cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// TestCookiesOfTwoServers signs in to two servers on one host with one browser, which keeps cookies by host and name, not
// by port.
func TestCookiesOfTwoServers(t *testing.T) {
	cookies := map[string]string{}
	var servers []*Server
	for range 2 {
		var notices strings.Builder
		s := must.Get(New(t.Context(), testConfig(t, t.TempDir()), "v1", storetest.Log(), &notices))(t)
		defer s.closeAll()
		maps.Copy(cookies, signIn(t, s, notices.String()))
		servers = append(servers, s)
	}
	for i, s := range servers {
		if res := visit(t, s, http.MethodGet, "/user/settings", cookies, nil); res.Code != http.StatusOK {
			t.Errorf("server %d does not know its user: status %d", i, res.Code)
		}
	}
	if res := visit(t, servers[0], http.MethodGet, "/user/settings", nil, nil); res.Code == http.StatusOK {
		t.Error("the page needs no cookie")
	}
}

// TestPlainText checks that a server to which other machines can connect without TLS says so, in the log and to its
// administrators.
func TestPlainText(t *testing.T) {
	for name, test := range map[string]struct {
		settings     map[string]string
		log, console string
	}{
		"loopback":                  {nil, "", ""},
		"loopback, behind TLS":      {map[string]string{"external_url": "https://deployments.example.com"}, "", ""},
		"all addresses":             {map[string]string{"listen": "0.0.0.0:0", "external_url": "https://deployments.example.com"}, "accepts connections without TLS on", "accepts connections without TLS on"},
		"all IPv6 addresses":        {map[string]string{"listen": "[::]:0", "external_url": "https://deployments.example.com"}, "accepts connections without TLS on", "accepts connections without TLS on"},
		"an external URL with http": {map[string]string{"external_url": "http://deployments.example.com"}, "access tokens and secrets cross the network in plain text", "This connection is not encrypted"},
	} {
		t.Run(name, func(t *testing.T) {
			var notices strings.Builder
			log, logged := logtest.NewNullLogger()
			s := must.Get(New(t.Context(), must.Get(configWith(t, t.TempDir(), test.settings))(t), "v1", logrus.NewEntry(log), &notices))(t)
			defer s.closeAll()
			page := visit(t, s, http.MethodGet, "/user/settings", signIn(t, s, notices.String()), nil).Body.String()
			var warned strings.Builder
			for _, e := range logged.AllEntries() {
				if strings.Contains(e.Message, "TLS") || strings.Contains(e.Message, "plain text") {
					fmt.Fprintln(&warned, e.Level, e.Message)
				}
			}
			if got := warned.String(); !strings.Contains(got, test.log) || (got == "") != (test.log == "") || test.log != "" && !strings.HasPrefix(got, "warning") {
				t.Errorf("the log says %q, want %q", got, test.log)
			}
			shown := strings.Contains(page, "without TLS") || strings.Contains(page, "not encrypted")
			if !strings.Contains(page, test.console) || shown != (test.console != "") || !strings.Contains(page, "/-/logout") {
				t.Errorf("the console shows a warning: %t; want %q in\n%s", shown, test.console, page)
			}
		})
	}
}

// TestPlainAddressInContainers checks that a container whose port is published on loopback does not warn.
func TestPlainAddressInContainers(t *testing.T) {
	l := must.Get(listen(t.Context(), "0.0.0.0:0"))(t)
	defer l.Close()
	for _, tt := range []struct {
		url       string
		container bool
		warns     bool
	}{
		{"http://localhost:8800", true, false},
		{"http://localhost:8800", false, true},
		{"https://deployments.example.com", true, true},
	} {
		s := &Server{listener: l, cfg: config.Config{ExternalURL: tt.url}, container: tt.container}
		if got := s.plainAddress(); (got != "") != tt.warns {
			t.Errorf("%s, container: %t: the address is %q", tt.url, tt.container, got)
		}
	}
}
