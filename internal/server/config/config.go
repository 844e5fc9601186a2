// Package config provides the server's configuration: one struct and its table of settings.
package config

import (
	"cmp"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/api/clientaddr"
	"workflowagent/internal/server/backup"
	"workflowagent/internal/server/identity/issuer"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/settings"
)

// Config is the configuration of a server. Each exported field has exactly one row in the table of
// settings (fields.go), which documents the field. A test enforces this.
type Config struct {
	Listen               string // host:port, or [UnixPrefix] and a path
	TLSCert              string // "" means no TLS
	TLSKey               string
	ACMETerms            bool // obtain the certificate by ACME
	ACMEDirectory        string
	ACMEEmail            string
	ACMENames            []string // none: the hosts of ExternalURL and ConsoleURL
	ACMECAFile           string   // "" trusts the system's authorities only
	ACMEKeyID            string   // "" is no external account
	ACMEKey              settings.Secret
	ACMEKeyFile          string // read by Load
	RedirectListen       string // "" means none
	ClientAddress        string // one of clientaddr.Sources
	TrustedProxies       clientaddr.Proxies
	DataDir              string
	Database             Database
	DatabasePassword     settings.Secret
	DatabaseConns        int    // of PostgreSQL
	DatabasePasswordFile string // read by Load
	ExternalURL          string // "" is the listening address
	ConsoleURL           string // "" follows from ExternalURL
	TokenSignIn          bool
	SignInFile           string // "" is none
	Organization         string
	MasterKeyFile        string // "" is a file in DataDir, created if missing
	MasterKeyCommand     string // "" means MasterKeyFile
	MetricsToken         settings.Secret
	MetricsTokenFile     string // read by Load
	LogLevel             logrus.Level
	LogFormat            string // text or json
	UpdateLease          time.Duration
	DefaultImage         string
	MaxDeployments       int64
	JobLease             time.Duration
	JobLost              time.Duration
	ForgePoll            time.Duration
	KeepStates           int64
	KeepStatesFor        time.Duration // 0 means forever
	KeepLogsFor          time.Duration // 0 means forever
	KeepDeletedStacks    time.Duration // 0 means not at all
	Quota                int64         // 0 means no limit
	PolicyPackSize       int64
	BackupSchedule       string // "" means none
	BackupDirectory      string // "" is a directory in DataDir
	BackupKeep           int    // number of backups
	BackupPassphrase     settings.Secret
	BackupPassphraseFile string // read by Load
	BackupBeforeUpgrade  bool
	Networks             Networks
	WebhookNetworks      Networks // the former name of Networks; adds to it
	ShutdownTimeout      time.Duration
	Runners              int    // 0 means none
	RunnersOrg           string // "" means the only one
	RunnersUser          string
	RunnersTarget        string // runners.Docker or runners.Process
	RunnersDir           string
	TrustAll             bool
	Releases             string // "" means none
	IssuerURL            string // "" is a path of ExternalURL
	KeyRotation          time.Duration
	Audiences            []string
	SessionTags          bool

	meta meta
}

type meta struct {
	file     string
	sources  map[string]settings.Source
	warnings []string
	runtime  string
}

// File returns the path of the configuration file, or "" if none was read.
func (c Config) File() string { return c.meta.file }

// RuntimeDir returns the directory for files that need not survive the process, which systemd creates, or "".
func (c Config) RuntimeDir() string { return c.meta.runtime }

// Warnings returns the problems that do not prevent the server from starting, one sentence each.
func (c Config) Warnings() []string { return c.meta.warnings }

// Source returns the origin of the key's value.
func (c Config) Source(key string) settings.Source { return c.meta.sources[key] }

// Settings returns all effective values in the order of the reference documentation.
func (c Config) Settings() []settings.Setting { return table(&c).Effective(c.meta.sources) }

// Changed returns the keys whose values differ in another configuration: those whose change a
// running server applies, and those that need a restart.
func (c Config) Changed(other Config) (applied, restart []string) {
	t := table(&c)
	reload := map[string]bool{}
	for _, f := range t.Fields() {
		reload[f.Key] = f.Reload
	}
	for _, key := range t.Changed(table(&other)) {
		if reload[key] {
			applied = append(applied, key)
		} else {
			restart = append(restart, key)
		}
	}
	return applied, restart
}

// Reloaded returns the configuration with the values of those settings in next that a running server
// applies.
func (c Config) Reloaded(next Config) Config {
	c.MetricsToken, c.MetricsTokenFile, c.LogLevel, c.LogFormat = next.MetricsToken, next.MetricsTokenFile, next.LogLevel, next.LogFormat
	return c
}

// ApplyLog sets the level and the format of the log.
func (c Config) ApplyLog(log *logrus.Logger) {
	log.SetLevel(c.LogLevel)
	if c.LogFormat == "json" {
		log.SetFormatter(&logrus.JSONFormatter{})
	} else {
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true})
	}
}

// Reach says which addresses organizations may make the server call.
func (c Config) Reach() outbound.Reach {
	return outbound.Reach{Internal: slices.Concat(c.Networks, c.WebhookNetworks)}
}

// Trust says which proxies are believed about the addresses of clients.
func (c Config) Trust() clientaddr.Trust {
	return clientaddr.Trust{Source: c.ClientAddress, Proxies: c.TrustedProxies}
}

// TLS reports whether the server terminates TLS itself.
func (c Config) TLS() bool { return c.TLSCert != "" || c.ACMETerms }

// CertificateNames returns the host names for which the server obtains certificates by ACME.
func (c Config) CertificateNames() []string {
	if len(c.ACMENames) > 0 {
		return c.ACMENames
	}
	var names []string
	for _, address := range []string{c.ExternalURL, string(c.Console())} {
		if u, err := url.Parse(address); err == nil && u.Hostname() != "" && !slices.Contains(names, u.Hostname()) {
			names = append(names, u.Hostname())
		}
	}
	return names
}

// DSN returns the database to open, with its password. Do not print it.
func (c Config) DSN() string {
	if c.Database == "" {
		return "sqlite:" + filepath.Join(c.DataDir, "server.db")
	}
	if c.DatabasePassword.IsZero() {
		return string(c.Database)
	}
	u, err := url.Parse(string(c.Database))
	if err != nil {
		return string(c.Database) // Load has refused it
	}
	u.User = url.UserPassword(u.User.Username(), c.DatabasePassword.Reveal())
	return u.String()
}

// MasterKey returns where the master key comes from. The server creates the file if it is in the data directory.
func (c Config) MasterKey() keyring.Source {
	if c.MasterKeyCommand != "" {
		return keyring.Source{Command: c.MasterKeyCommand}
	}
	return keyring.Source{File: cmp.Or(c.MasterKeyFile, filepath.Join(c.DataDir, "master-key")), Create: c.MasterKeyFile == ""}
}

// Backups returns what the server's own backups have in common.
func (c Config) Backups() backup.Request {
	return backup.Request{
		Dir: cmp.Or(c.BackupDirectory, filepath.Join(c.DataDir, "backups")), Keep: c.BackupKeep, Passphrase: c.BackupPassphrase.Reveal(),
	}
}

// Console returns the URL of the console.
func (c Config) Console() links.Console {
	if c.ConsoleURL != "" {
		return links.Console(c.ConsoleURL)
	}
	return links.Of(c.ExternalURL)
}

// ConsoleOrListen returns the URL of the console. For a configuration without URLs, known is not set,
// and the URL is a guess from the address to listen on.
func (c Config) ConsoleOrListen() (address string, known bool) {
	known = c.ExternalURL != "" || c.ConsoleURL != ""
	scheme := "http://"
	if c.TLS() {
		scheme = "https://"
	}
	listen := c.Listen
	if strings.HasPrefix(listen, UnixPrefix) {
		listen = "localhost"
	}
	c.ExternalURL = cmp.Or(c.ExternalURL, scheme+listen)
	return string(c.Console()), known
}

// Issuer returns the URL of the issuer of identity tokens, or "" if it depends on the address
// listened on.
func (c Config) Issuer() string {
	if c.IssuerURL == "" && c.ExternalURL != "" {
		return c.ExternalURL + issuer.Path
	}
	return c.IssuerURL
}
