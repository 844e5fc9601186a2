package reach

import (
	"errors"
	"net"
	"net/url"
	"os"
	"strings"

	"workflowagent/internal/termtext"
)

// Limits of what other programs send, in bytes.
const (
	maxText    = 500
	maxHeaders = 64 << 10
)

// cause returns a network error without its operation and URL, because the URL might contain a
// secret.
func cause(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op != "proxyconnect" {
		err = op.Err
	}
	return err
}

func withoutUser(u *url.URL) string {
	plain := *u
	plain.User = nil
	return plain.String()
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	switch u.Scheme {
	case "https":
		return "443"
	case "socks5", "socks5h":
		return "1080"
	}
	return "80"
}

func hostPort(u *url.URL) string { return net.JoinHostPort(u.Hostname(), port(u)) }

// resolvers returns the name servers in /etc/resolv.conf, or nil if the system lacks this file.
func resolvers() []string {
	data, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return nil
	}
	var all []string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "nameserver" {
			all = append(all, termtext.OneLine(fields[1], maxText))
		}
	}
	return all
}
