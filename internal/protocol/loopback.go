package protocol

import (
	"net"
	"net/url"
	"strings"
)

// OnLoopback reports whether the host of a URL is this machine itself.
func OnLoopback(rawURL string) bool {
	u, err := url.Parse(rawURL)
	return err == nil && IsLoopback(u.Host)
}

// IsLoopback reports whether a host, with or without a port, is this machine itself: localhost or a
// loopback address. Other names depend on a resolver and do not count.
func IsLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}
