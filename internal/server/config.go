package server

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"go.yaml.in/yaml/v4"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/stacks"
)

// EnvPrefix is the prefix of the server's environment variables.
const EnvPrefix = "WORKFLOW_SERVER_"

// Config is the configuration of a server.
type Config struct {
	Listen          string        // host:port
	DataDir         string        // keys, first token and, by default, the database
	Database        string        // "sqlite:PATH" or "postgres://…"; "" is SQLite in DataDir
	ExternalURL     string        // URL for clients; "" is the listening address
	Organization    string        // name of the first organization
	MasterKeyFile   string        // "" is a file in DataDir, created if missing
	MetricsToken    string        // secret; required by /metrics
	LogLevel        logrus.Level  // of the server's log
	LogFormat       string        // text or json
	UpdateLease     time.Duration // how long an update may be silent
	DefaultImage    string        // image of deployments that name none
	MaxDeployments  int64         // claimed and running deployments of an organization
	JobLease        time.Duration // silence before the start that requeues a deployment
	JobLost         time.Duration // silence after the start that ends a deployment
	ShutdownTimeout time.Duration // how long requests in flight may take at shutdown
	Releases        string        // directory with a mirror of the agent's releases; "" is none
}

// Field is a setting: its name in a file, on the command line (with dashes) and in the environment
// (upper case, after [EnvPrefix]).
type Field struct {
	Key     string
	Default string
	Usage   string
	set     func(c *Config, v string) error
}

// Flag returns the setting's name on the command line.
func (f Field) Flag() string { return strings.ReplaceAll(f.Key, "_", "-") }

// Env returns the setting's environment variable.
func (f Field) Env() string { return EnvPrefix + strings.ToUpper(f.Key) }

// Fields returns all settings. Flags, environment, file and their documentation derive from it.
func Fields() []Field {
	text := func(p func(*Config) *string) func(*Config, string) error {
		return func(c *Config, v string) error { *p(c) = v; return nil }
	}
	duration := func(p func(*Config) *time.Duration) func(*Config, string) error {
		return func(c *Config, v string) error {
			d, err := time.ParseDuration(v)
			if err != nil || d <= 0 {
				return errors.New(`a duration above zero is expected, such as "30s" or "5m"`)
			}
			*p(c) = d
			return nil
		}
	}
	return []Field{
		{"listen", "127.0.0.1:8800", "address to listen on, host:port", func(c *Config, v string) error {
			if _, _, err := net.SplitHostPort(v); err != nil {
				return errors.New("host:port is expected")
			}
			c.Listen = v
			return nil
		}},
		{"data_dir", "workflow-server-data", "directory for keys, the first access token and the default database", text(func(c *Config) *string { return &c.DataDir })},
		{"database", "", `"sqlite:PATH" or "postgres://USER@HOST/NAME" (default: SQLite in the data directory)`, func(c *Config, v string) error {
			// The value may hold a password, so the error omits it.
			if v != "" && !strings.HasPrefix(v, "sqlite:") && !strings.HasPrefix(v, "postgres://") && !strings.HasPrefix(v, "postgresql://") {
				return errors.New(`it must begin with "sqlite:" or "postgres://"`)
			}
			c.Database = v
			return nil
		}},
		{"external_url", "", "URL under which clients and jobs reach this server (default: the address listened on)", setURL},
		{"organization", "organization", "name of the organization that the first start creates", text(func(c *Config) *string { return &c.Organization })},
		{"master_key_file", "", "file with the master key of secrets, 32 bytes in base64 (default: master-key in the data directory, made when missing)", text(func(c *Config) *string { return &c.MasterKeyFile })},
		{"metrics_token", "", "bearer token that /metrics needs; without one it is open to callers on this machine, but not through a proxy", text(func(c *Config) *string { return &c.MetricsToken })},
		{"log_level", "info", "error, warning, info or debug", func(c *Config, v string) error {
			l, err := logrus.ParseLevel(v)
			if err != nil {
				return errors.New("error, warning, info or debug is expected")
			}
			c.LogLevel = l
			return nil
		}},
		{"log_format", "text", "text or json", func(c *Config, v string) error {
			if v != "text" && v != "json" {
				return errors.New("text or json is expected")
			}
			c.LogFormat = v
			return nil
		}},
		{"update_lease", stacks.MaxLease.String(), "how long an update may go without renewing its lease, at most 5m", func(c *Config, v string) error {
			if err := duration(func(c *Config) *time.Duration { return &c.UpdateLease })(c, v); err != nil {
				return err
			}
			if c.UpdateLease > stacks.MaxLease {
				return errors.New("clients count on leases of at most 5m")
			}
			return nil
		}},
		{"default_image", deployments.DefaultImage, "container image of deployments whose settings name none", text(func(c *Config) *string { return &c.DefaultImage })},
		{"max_deployments", strconv.Itoa(deployments.DefaultCap), "deployments of an organization that may be claimed or running at once", func(c *Config, v string) error {
			n, err := strconv.ParseInt(v, 10, 32)
			if err != nil || n < 1 {
				return errors.New("a whole number above zero is expected")
			}
			c.MaxDeployments = n
			return nil
		}},
		{"job_lease", "1m", "silence of an agent that gives a deployment it claimed but did not start back to the queue", duration(func(c *Config) *time.Duration { return &c.JobLease })},
		{"job_lost", "10m", "silence of a running deployment after which it is given up as lost", duration(func(c *Config) *time.Duration { return &c.JobLost })},
		{"releases", "", "directory with a mirror of the agent's releases, served to everybody at /releases/", setReleases},
		{"shutdown_timeout", "30s", "how long requests may take to finish when the server stops", duration(func(c *Config) *time.Duration { return &c.ShutdownTimeout })},
	}
}

func setURL(c *Config, v string) error {
	if v == "" {
		c.ExternalURL = ""
		return nil
	}
	u, err := url.Parse(v)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("an http:// or https:// URL is expected")
	}
	if strings.Trim(u.Path, "/") != "" {
		// Some clients replace the whole path by /api.
		return errors.New("the server must be at the root of its host, without a path")
	}
	c.ExternalURL = u.Scheme + "://" + u.Host
	return nil
}

// setReleases requires an existing directory: a misspelled one would look like an empty mirror.
func setReleases(c *Config, v string) error {
	if v == "" {
		c.Releases = ""
		return nil
	}
	info, err := os.Stat(v)
	if err != nil || !info.IsDir() {
		return errors.New("a directory that exists is expected")
	}
	if c.Releases, err = filepath.Abs(v); err != nil {
		return fmt.Errorf("resolving the directory: %w", err)
	}
	return nil
}

func (c Config) database() string {
	if c.Database != "" {
		return c.Database
	}
	return "sqlite:" + filepath.Join(c.DataDir, "server.db")
}

// LoadConfig builds a configuration. Flags override the environment, the environment the file, and
// the file the defaults. flags and env return a value and whether it was set; file is "" for none.
func LoadConfig(file string, flags, env func(Field) (string, bool)) (Config, error) {
	var c Config
	inFile, err := readConfigFile(file)
	if err != nil {
		return Config{}, err
	}
	for _, f := range Fields() {
		value, where := f.Default, "the default"
		if v, ok := inFile[f.Key]; ok {
			value, where = v.text, fmt.Sprintf("%s:%d: %s", file, v.line, f.Key)
		}
		if v, ok := env(f); ok {
			value, where = v, "environment variable "+f.Env()
		}
		if v, ok := flags(f); ok {
			value, where = v, "flag --"+f.Flag()
		}
		if err := f.set(&c, value); err != nil {
			return Config{}, fmt.Errorf("%s: %w", where, err)
		}
	}
	if c.DataDir, err = filepath.Abs(c.DataDir); err != nil {
		return Config{}, fmt.Errorf("resolving the data directory: %w", err)
	}
	return c, nil
}

type fileValue struct {
	text string
	line int
}

// readConfigFile reads a file of "key: value" lines. Errors name file, line and key, never a value.
func readConfigFile(path string) (map[string]fileValue, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("%s is not valid YAML: %w", path, err)
	}
	if doc.Kind == 0 {
		return nil, nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: lines of the form \"key: value\" are expected", path, root.Line)
	}
	known := map[string]bool{}
	for _, f := range Fields() {
		known[f.Key] = true
	}
	out := map[string]fileValue{}
	for i := 0; i < len(root.Content); i += 2 {
		k, v := root.Content[i], root.Content[i+1]
		switch {
		case !known[k.Value]:
			return nil, fmt.Errorf("%s:%d: %q is not a known key", path, k.Line, k.Value)
		case v.Kind != yaml.ScalarNode:
			return nil, fmt.Errorf("%s:%d: %s: a single value is expected", path, v.Line, k.Value)
		case v.Tag == "!!null":
			continue
		}
		if _, twice := out[k.Value]; twice {
			return nil, fmt.Errorf("%s:%d: %s is given twice", path, k.Line, k.Value)
		}
		out[k.Value] = fileValue{v.Value, v.Line}
	}
	return out, nil
}
