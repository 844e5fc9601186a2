package protocol

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// OnLoopback reports whether the URL's host is this machine; see [IsLoopback].
func OnLoopback(rawURL string) bool {
	u, err := url.Parse(rawURL)
	return err == nil && IsLoopback(u.Host)
}

// IsLoopback reports whether a host, with or without a port, is localhost or a loopback address.
// Other names do not count, because they depend on a resolver.
func IsLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}

// ProxyNames returns the names of the environment variables that configure proxies.
func ProxyNames() []string {
	return []string{
		"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy",
		"ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy",
	}
}

// ProxySecrets returns the passwords in the proxy variables, by variable name. It returns each
// password decoded and as written in the URL.
func ProxySecrets(vars map[string]string) map[string][]string {
	secrets := map[string][]string{}
	for name, value := range vars {
		_, rest, ok := strings.Cut(value, "://")
		if !ok {
			rest = value
		}
		u, err := url.Parse("http://" + rest)
		if err != nil || u.User == nil {
			continue
		}
		password, ok := u.User.Password()
		if !ok || password == "" {
			continue
		}
		secrets[name] = append(secrets[name], password)
		userinfo := rest[:strings.LastIndexByte(strings.SplitN(rest, "/", 2)[0], '@')]
		if _, written, _ := strings.Cut(userinfo, ":"); written != password {
			secrets[name] = append(secrets[name], written)
		}
	}
	return secrets
}

// SameProtocol is a transport that refuses a switch to another protocol. After a switch, reads of the
// body end neither at a deadline nor when the context is canceled.
type SameProtocol struct{ http.RoundTripper }

// ErrSwitched reports a response that [SameProtocol] refuses.
var ErrSwitched = errors.New("it switched to another protocol")

// RoundTrip implements [http.RoundTripper].
func (t SameProtocol) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.RoundTripper.RoundTrip(req)
	if err == nil && res.StatusCode == http.StatusSwitchingProtocols {
		return nil, errors.Join(ErrSwitched, res.Body.Close())
	}
	return res, err
}

// CloseIdleConnections closes the idle connections of the transport.
func (t SameProtocol) CloseIdleConnections() {
	(&http.Client{Transport: t.RoundTripper}).CloseIdleConnections()
}
