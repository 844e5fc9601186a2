package config

import (
	"errors"
	"fmt"
	"net"
	"net/mail"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/idna"

	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/triggers"
)

// Database is "sqlite:PATH", or a "postgres://…" URL, which can contain a password. The default is
// SQLite in the data directory.
type Database string

const hidden = "REDACTED"

// secretParameters are the parameters of a database's URL that contain secrets.
var secretParameters = []string{"password", "sslpassword"}

// UnmarshalText implements [encoding.TextUnmarshaler]. Its errors omit the text.
func (d *Database) UnmarshalText(text []byte) error {
	value := string(text)
	switch {
	case strings.HasPrefix(value, "sqlite:"):
	case strings.HasPrefix(value, "postgres://") || strings.HasPrefix(value, "postgresql://"):
		if _, err := url.Parse(value); err != nil {
			return errors.New("is not a URL: write it like postgres://USER@HOST/NAME, and encode other characters than letters and digits, such as %40 for @")
		}
	default:
		return errors.New(`is not a database: begin it with "sqlite:" or "postgres://"`)
	}
	*d = Database(value)
	return nil
}

// String returns the database without its password.
func (d Database) String() string {
	u := d.url()
	if u == nil {
		return string(d)
	}
	if _, has := u.User.Password(); has {
		u.User = url.UserPassword(u.User.Username(), hidden)
	}
	if query := u.Query(); slices.ContainsFunc(secretParameters, query.Has) {
		for _, name := range secretParameters {
			if query.Has(name) {
				query.Set(name, hidden)
			}
		}
		u.RawQuery = query.Encode()
	}
	return u.String()
}

// HasPassword reports whether the URL contains a password.
func (d Database) HasPassword() bool {
	return d.String() != string(d) && strings.Contains(d.String(), hidden)
}

// url returns the URL of a PostgreSQL database, or nil.
func (d Database) url() *url.URL {
	if strings.HasPrefix(string(d), "sqlite:") || d == "" {
		return nil
	}
	u, err := url.Parse(string(d))
	if err != nil {
		return nil
	}
	return u
}

// Networks is a list of networks.
type Networks []netip.Prefix

// UnmarshalText implements [encoding.TextUnmarshaler].
func (n *Networks) UnmarshalText(text []byte) error {
	*n = nil
	for i, part := range strings.Split(string(text), ",") {
		network, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return fmt.Errorf("entry %d is not a network: write networks as 10.0.0.0/8, addresses as 192.168.1.20/32, and commas between them", i+1)
		}
		*n = append(*n, network)
	}
	return nil
}

// String returns the networks in the form of the setting.
func (n Networks) String() string {
	texts := make([]string, len(n))
	for i, network := range n {
		texts[i] = network.String()
	}
	return strings.Join(texts, ", ")
}

// UnixPrefix begins a setting listen that names a unix socket.
const UnixPrefix = "unix:"

func checkListen(address string) error {
	if path, ok := strings.CutPrefix(address, UnixPrefix); ok {
		if !filepath.IsAbs(path) {
			return errors.New("is a unix socket without its whole path: write it as unix:/run/workflow-server/http.sock")
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return errors.New("is not an address: write it as host:port")
	}
	return nil
}

func checkExternalURL(text string) error {
	// Some clients replace the whole path with /api.
	if u, err := url.Parse(text); err != nil || u.Path != "" {
		return errors.New("has a path, but the server must be at the root of its host: remove the path")
	}
	return nil
}

// checkReleases returns an error if dir is not an existing directory. A misspelled path would look
// like an empty mirror.
func checkReleases(dir string) error {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return errors.New("is not an existing directory: correct the path or create the directory")
	}
	return nil
}

// checkSchedule returns an error unless a cron expression with five fields is due at some time.
func checkSchedule(expression string) error {
	if _, err := triggers.NextTime(expression, time.Now()); err != nil {
		return fmt.Errorf("cannot be used: %w", err)
	}
	return nil
}

// LetsEncrypt is the ACME directory of Let's Encrypt.
const LetsEncrypt = "https://acme-v02.api.letsencrypt.org/directory"

func checkDirectory(address string) error {
	if err := outbound.CheckBase(address); err != nil {
		return fmt.Errorf("%w: use the URL of the authority's ACME directory", err)
	}
	return nil
}

func checkEmail(address string) error {
	if a, err := mail.ParseAddress(address); err != nil || a.Address != address {
		return errors.New("is not an email address: write it as operator@example.com")
	}
	return nil
}

var errPrivateName = errors.New("has no domain, and Let's Encrypt issues no certificates for such names: use the full name, or set acme_directory to your own authority")

// checkName returns an error unless an authority can issue a certificate for a name by ACME without DNS-01.
func checkName(name string) error {
	if strings.HasPrefix(name, "*.") {
		return errors.New("is a wildcard, for which the authority would demand a change of the DNS (DNS-01), which the server does not support: list the names, or use tls_cert_file")
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return errors.New("is an address instead of a name: use a name, or tls_cert_file")
	}
	if ascii, err := idna.Lookup.ToASCII(name); err != nil || ascii != name {
		return errors.New("is not a host name: write it in lower case, and in Punycode if it has other characters than letters, digits and hyphens")
	}
	return nil
}
