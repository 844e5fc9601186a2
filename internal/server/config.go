package server

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/api/clientaddr"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity/issuer"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/runners"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/settings"
)

// EnvPrefix is the prefix of the server's environment variables.
const EnvPrefix = "WORKFLOW_SERVER_"

// Config is the configuration of a server.
type Config struct {
	Listen          string // host:port, or unix:PATH
	DataDir         string // keys, first token and, by default, the database
	Database        string // "sqlite:PATH" or "postgres://…"; "" is SQLite in DataDir
	ExternalURL     string // URL for clients; "" is the listening address
	ConsoleURL      string // URL of the console for browsers; "" follows from ExternalURL
	TLSCert, TLSKey string // files of the certificate and its key; "" means no TLS
	RedirectListen  string // host:port that redirects to https; "" means none
	ClientAddress   string // one of clientaddr.Sources
	TrustedProxies  clientaddr.Proxies
	TokenSignIn     bool            // whether users can sign in to the console with access tokens
	SignInFile      string          // lists the identity providers at which users sign in; "" is none
	Organization    string          // name of the first organization
	MasterKeyFile   string          // "" is a file in DataDir, created if missing
	MetricsToken    settings.Secret // required by /metrics
	LogLevel        logrus.Level    // of the server's log
	LogFormat       string          // text or json
	UpdateLease     time.Duration   // time after which an update whose lease is not renewed ends
	DefaultImage    string          // image for deployments without one in their settings
	MaxDeployments  int64           // limit of claimed and running deployments per organization
	JobLease        time.Duration   // silence before the start that requeues a deployment
	JobLost         time.Duration   // silence after the start that ends a deployment
	ForgePoll       time.Duration   // interval of the polls of forges that send no deliveries
	KeepStates      int64           // number of each stack's newest states that are kept
	KeepStatesFor   time.Duration   // age up to which other states are kept; 0 means forever
	KeepLogsFor     time.Duration   // age up to which logs and events are kept; 0 means forever
	Quota           int64           // bytes that an organization may store; 0 means no limit
	Networks        networks        // internal networks that organizations may make the server call
	WebhookNetworks networks        // the former name of Networks; adds to it
	ShutdownTimeout time.Duration   // time that requests in flight get at shutdown
	Runners         int             // slots of the built-in runners; 0 means none
	RunnersOrg      string          // their organization; "" means the only one
	RunnersUser     string          // their system user
	RunnersTarget   string          // runners.Docker or runners.Process
	RunnersDir      string          // directory of their agent
	TrustAll        bool            // every repository may run code as the runners' user
	Releases        string          // directory with a mirror of the agent's releases; "" means none
	IssuerURL       string          // issuer of the jobs' identity tokens; "" is a path of ExternalURL
	KeyRotation     time.Duration   // time for which a key signs identity tokens
	Audiences       []string        // audiences of identity tokens that jobs may request
	SessionTags     bool            // whether identity tokens contain session tags for AWS
}

// Settings returns the table of the server's settings, which reads and sets the fields of c.
func Settings(c *Config) *settings.Table {
	const shortest = int64(time.Millisecond)
	return settings.NewTable(EnvPrefix, settings.Group{Title: "Settings", Fields: []settings.Field{{
		Key: "listen", Value: &c.Listen, Default: "127.0.0.1:8800", Check: checkListen,
		Doc: "address to listen on, host:port, or unix:PATH for a unix socket",
	}, {
		Key: "tls_cert_file", Value: (*settings.Path)(&c.TLSCert),
		Doc: "file with the TLS certificate and its chain in PEM, read again when it changes (default: no TLS)",
	}, {
		Key: "tls_key_file", Value: (*settings.Path)(&c.TLSKey),
		Doc: "file with the private key of tls_cert_file in PEM",
	}, {
		Key: "redirect_listen", Value: &c.RedirectListen, Check: checkListen, Example: "0.0.0.0:80",
		Doc: "address, host:port, on which browsers that use http are redirected to the external URL (default: none)",
	}, {
		Key: "client_address", Value: &c.ClientAddress, Default: clientaddr.Connection, Choices: clientaddr.Sources(),
		Doc: "where a client's address comes from: the connection, or what the trusted proxies send: x-forwarded-for, forwarded or proxy-protocol",
	}, {
		Key: "trusted_proxies", Value: &c.TrustedProxies, Example: "127.0.0.1, 10.0.0.0/8",
		Doc: "proxies that may state a client's address: addresses and networks, separated by commas, and unix for the unix socket (default: none)",
	}, {
		Key: "data_dir", Value: (*settings.Path)(&c.DataDir), Default: "workflow-server-data",
		Doc: "directory for keys, the first access token and the default database",
	}, {
		Key: "database", Value: &c.Database, Check: checkDatabase,
		Doc: `"sqlite:PATH" or "postgres://USER@HOST/NAME" (default: SQLite in the data directory)`,
	}, {
		Key: "external_url", Value: (*settings.URL)(&c.ExternalURL), Check: checkExternalURL,
		Doc: "URL under which clients and jobs reach this server (default: the address listened on)",
	}, {
		Key: "console_url", Value: (*settings.URL)(&c.ConsoleURL), Check: checkExternalURL,
		Doc: "URL of the console for browsers (default: the external URL, with the host app.X if that is api.X)",
	}, {
		Key: "token_sign_in", Value: &c.TokenSignIn, Default: "true",
		Doc: "whether users can sign in to the console with a personal access token",
	}, {
		Key: "sign_in_file", Value: (*settings.Path)(&c.SignInFile),
		Doc: "file that lists the identity providers at which users sign in to the console by OpenID Connect, see docs/sign-in.md (default: none)",
	}, {
		Key: "organization", Value: &c.Organization, Default: "organization",
		Doc: "name of the organization that the first start creates",
	}, {
		Key: "master_key_file", Value: (*settings.Path)(&c.MasterKeyFile),
		Doc: "file with the master key for secrets, 32 bytes in base64 (default: master-key in the data directory, created if missing)",
	}, {
		Key: "metrics_token", Value: &c.MetricsToken,
		Doc: "bearer token that /metrics requires; without it, the server refuses /metrics to all callers",
	}, {
		Key: "log_level", Value: &c.LogLevel, Default: "info", Choices: []string{"error", "warning", "info", "debug"},
		Doc: "error, warning, info or debug",
	}, {
		Key: "log_format", Value: &c.LogFormat, Default: "text", Choices: []string{"text", "json"},
		Doc: "text or json",
	}, {
		Key: "update_lease", Value: &c.UpdateLease, Default: stacks.MaxLease.String(),
		Min: shortest, Max: int64(stacks.MaxLease), // clients rely on leases of at most 5m
		Doc: "how long an update may go without renewing its lease, at most 5m; the pulumi CLI renews it about every 3m, so less than 4m ends longer updates",
	}, {
		Key: "default_image", Value: &c.DefaultImage, Default: deployments.DefaultImage,
		Doc: "container image of deployments whose settings name none",
	}, {
		Key: "max_deployments", Value: &c.MaxDeployments, Default: strconv.Itoa(deployments.DefaultCap), Min: 1, Max: math.MaxInt32,
		Doc: "deployments of an organization that may be claimed or running at once",
	}, {
		Key: "job_lease", Value: &c.JobLease, Default: "1m", Min: shortest,
		Doc: "time without a heartbeat after which a deployment that was claimed but not started returns to the queue",
	}, {
		Key: "job_lost", Value: &c.JobLost, Default: "10m", Min: shortest,
		Doc: "time without a heartbeat after which a running deployment fails as lost",
	}, {
		Key: "forge_poll", Value: &c.ForgePoll, Default: "1m", Min: shortest,
		Doc: "how often the repositories of integrations are polled whose webhooks do not reach this server; the others are polled every 15m at most",
	}, {
		Key: "releases", Value: (*settings.Path)(&c.Releases), Check: checkReleases,
		Doc: "directory with a mirror of the agent's releases, served to all clients at /releases/",
	}, {
		Key: "oidc_issuer_url", Value: (*settings.URL)(&c.IssuerURL),
		Doc: "URL that identifies this server in the identity tokens of jobs, where its keys are published (default: /oidc below the external URL)",
	}, {
		Key: "oidc_key_rotation", Value: &c.KeyRotation, Default: "2160h", Min: int64(issuer.MinRotation),
		Doc: "how long a key signs the identity tokens of jobs (default: 90 days)",
	}, {
		Key: "oidc_audiences", Value: &c.Audiences, Separator: ",",
		Doc: "comma-separated audiences of identity tokens that every job may request, in addition to its organization's name",
	}, {
		Key: "oidc_aws_session_tags", Value: &c.SessionTags, Default: "false",
		Doc: "whether identity tokens contain trigger and fork as session tags for AWS; every role must then permit sts:TagSession",
	}, {
		Key: "keep_states", Value: &c.KeepStates, Default: "50", Min: 1, Max: math.MaxInt32,
		Doc: "number of each stack's newest states that are kept, whatever their age",
	}, {
		Key: "keep_states_for", Value: &c.KeepStatesFor, Default: "2160h",
		Doc: "age at which other states are removed (default: 90 days; 0s: never)",
	}, {
		Key: "keep_logs_for", Value: &c.KeepLogsFor, Default: "4320h",
		Doc: "age at which the logs of deployments and the events of updates are removed (default: 180 days; 0s: never)",
	}, {
		Key: "organization_quota", Value: (*settings.Bytes)(&c.Quota),
		Doc: "bytes that an organization may store, such as 50g (default: no limit)",
	}, {
		Key: "outbound_networks", Value: &c.Networks, Example: "10.0.0.0/8, 192.168.1.20/32",
		Doc: "networks in CIDR notation, separated by commas, in which webhooks, integrations and OIDC issuers may be although they are not public (default: none)",
	}, {
		Key: "webhook_networks", Value: &c.WebhookNetworks, Example: "10.0.0.0/8, 192.168.1.20/32",
		Doc: "former name of outbound_networks, with the same effect",
	}, {
		Key: "runners", Value: &c.Runners, Min: 1, Max: 1000,
		Doc: "run up to this number of deployments at once on this machine, with an agent that the server starts (default: none)",
	}, {
		Key: "runners_org", Value: &c.RunnersOrg,
		Doc: "organization whose deployments the built-in runners run (default: the only one)",
	}, {
		Key: "runners_user", Value: &c.RunnersUser, Default: runners.DefaultUser,
		Doc: "system user of the built-in runners, who may use the Docker Engine",
	}, {
		Key: "runners_target", Value: &c.RunnersTarget, Default: runners.Docker, Choices: []string{runners.Docker, runners.Process},
		Doc: "where the built-in runners run deployments: in containers (docker) or, without isolation, as processes of their user (process)",
	}, {
		Key: "runners_dir", Value: (*settings.Path)(&c.RunnersDir), Default: "/var/lib/workflow-runners",
		Doc: "directory for the state of the built-in runners, which their user must be able to enter",
	}, {
		Key: "i_trust_every_repository", Value: &c.TrustAll, Default: "false",
		Doc: "required by --runners-target process: everyone who can change a deployed repository can run code as the runners' user",
	}, {
		Key: "shutdown_timeout", Value: &c.ShutdownTimeout, Default: "30s", Min: shortest,
		Doc: "how long requests may take to finish when the server stops",
	}}})
}

// reach says which addresses organizations may make the server call.
func (c Config) reach() outbound.Reach {
	return outbound.Reach{Internal: slices.Concat(c.Networks, c.WebhookNetworks)}
}

// networks is a list of networks.
type networks []netip.Prefix

// UnmarshalText implements [encoding.TextUnmarshaler].
func (n *networks) UnmarshalText(text []byte) error {
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

func checkListen(address string) error {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
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

// checkDatabase returns an error if the scheme of the database is unknown. The error omits the
// value, which can contain a password.
func checkDatabase(database string) error {
	for _, scheme := range []string{"sqlite:", "postgres://", "postgresql://"} {
		if strings.HasPrefix(database, scheme) {
			return nil
		}
	}
	return errors.New(`is not a database: begin it with "sqlite:" or "postgres://"`)
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

func (c Config) database() string {
	return cmp.Or(c.Database, "sqlite:"+filepath.Join(c.DataDir, "server.db"))
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
	c.ExternalURL = cmp.Or(c.ExternalURL, "http://"+c.Listen)
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

// LoadConfig returns the configuration of a server. flags holds values by key. Flags override the
// environment, which overrides the file, which overrides the defaults. If file is "", no file is
// read.
func LoadConfig(file string, flags map[string]string, getenv func(string) string) (Config, error) {
	var c Config
	t := Settings(&c)
	// If the working directory is unknown, only relative paths fail.
	t.Dirs.Cwd, _ = os.Getwd()
	t.Dirs.Home, _ = os.UserHomeDir()
	t.SetDefaults()
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return Config{}, fmt.Errorf("reading the configuration: %w", err)
		}
		t.ReadFile(file, text)
	}
	t.ReadEnv(getenv)
	t.ReadFlags(flags)
	if c.Runners > 0 && c.RunnersTarget == runners.Process && !c.TrustAll {
		t.Problems.Add(settings.Source{}, "runners_target", "is process, which does not isolate deployments from each other and from the machine: use docker, or add --i-trust-every-repository")
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		t.Problems.Add(settings.Source{}, "tls_cert_file", "needs tls_key_file, and tls_key_file needs it: set both, or none")
	}
	if c.TLSCert != "" && strings.HasPrefix(c.ExternalURL, "http:") {
		t.Problems.Add(settings.Source{}, "external_url", "begins with http although the server uses TLS: begin it with https")
	}
	if c.RedirectListen != "" && c.TLSCert == "" {
		t.Problems.Add(settings.Source{}, "redirect_listen", "redirects to https, but the server does not use TLS: set tls_cert_file and tls_key_file")
	}
	if err := c.trust().Check(); err != nil {
		t.Problems.Add(settings.Source{}, "client_address", err.Error())
	}
	return c, t.Problems.Err(c.MetricsToken)
}
