// Package config provides the agent's configuration: one struct and its table of settings.
//
// [Load] finds and reads the file, applies the environment, which takes precedence, and fills in
// the defaults that depend on the machine. [Config.Validate] reports whether an agent can run with
// the result. The two are separate because some commands complete, show or examine an incomplete
// configuration. No other package of the agent reads settings from the environment.
package config

import (
	"net"
	"strconv"
	"time"

	"workflowagent/internal/settings"
)

// Config is the agent's whole configuration. Each exported field has exactly one row in the table
// of settings (fields.go), which documents it; a test enforces this.
type Config struct {
	Token settings.Secret

	// ServiceURL has a scheme, a host and optionally a path, without a trailing slash.
	ServiceURL string
	// WorkingDirectory is the absolute path of the directory with the runner binaries.
	WorkingDirectory string
	// SharedVolumeDirectory is the absolute path of a host directory to share with job containers,
	// or empty: see [Config.TempDirectory].
	SharedVolumeDirectory string
	DeployTarget          DeployTarget
	SingleRun             bool
	PullImage             bool
	// EnabledWorkflowTypes is never empty in a valid configuration.
	EnabledWorkflowTypes []string
	// EnvForwardAllowlist names the host variables given to jobs: see [Config.ForwardedEnv].
	EnvForwardAllowlist []string

	OIDCTokenFile    string
	OrganizationName string
	RunnerPoolID     string
	// TokenExpiration is the lifetime to request; zero leaves it to the server.
	TokenExpiration time.Duration

	// PollingInterval is the pause between polls without a Retry-After.
	PollingInterval time.Duration
	// PollingIntervalOverride disables Retry-After and long polls.
	PollingIntervalOverride bool
	// JobStatusLoopInterval is the pause between two checks of a running job's status.
	JobStatusLoopInterval  time.Duration
	RequestTimeout         time.Duration
	RequestRetryCount      int
	RequestRetryWait       time.Duration
	RequestRetryMaxWait    time.Duration
	CircuitBreakerFailures int
	CircuitBreakerTimeout  time.Duration

	// HTTPServerPort is the port of the health server; zero disables the server.
	HTTPServerPort    int
	HTTPServerAddress string
	// HealthThreshold is the maximum time since the last activity of a healthy agent. Load derives
	// it from the intervals if it is not set.
	HealthThreshold time.Duration
	Syslog          bool
	LogFormat       LogFormat
	LogJobOutput    bool

	MaxConcurrentJobs int
	// StateDirectory is the absolute path of the directory for journal and spool: see
	// [Config.PrepareStateDirectory].
	StateDirectory string
	// AllowedImages are patterns of job images; nil allows all.
	AllowedImages []string
	// AllowedRepositories are patterns of git URLs; nil allows all.
	AllowedRepositories []string
	// CACertificateFile is a PEM file of certificate authorities to trust in addition to the
	// system's.
	CACertificateFile string

	// DockerNetwork may be empty: the executor then chooses the network.
	DockerNetwork string
	// DockerMemory limits the memory of a job container, in bytes; zero means no limit.
	DockerMemory int64
	// DockerCPUs limits the CPUs of a job container; zero means no limit.
	DockerCPUs float64
	// DockerPidsLimit limits the processes and threads of a job container; zero means no limit.
	DockerPidsLimit int64

	AutoUpdate    AutoUpdate
	UpdateChannel string
	// UpdateURL is the location of releases; empty means the location where this build was
	// released.
	UpdateURL string

	AgentImage         string
	ImagePullPolicy    string
	ServiceAccountName string
	// NumCPUs is the CPU request of worker pods, as a Kubernetes quantity.
	NumCPUs string
	// MemQuantity is the memory request of worker pods, in Gi.
	MemQuantity            string
	DebugPod               bool
	OverrideImageReference string
	// DockerHost is the host's DOCKER_HOST; jobs always get it if it is set.
	DockerHost string

	meta meta
}

// DeployTarget selects where jobs run.
type DeployTarget string

// The deploy targets.
const (
	TargetDocker     DeployTarget = "docker"
	TargetKubernetes DeployTarget = "kubernetes"
	TargetProcess    DeployTarget = "process"
)

// LogFormat is the format of the agent's own log.
type LogFormat string

// The log formats.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// AutoUpdate selects whether the agent updates itself.
type AutoUpdate string

// The choices of auto_update. The effect of auto depends on how the agent was installed: an agent
// installed by the install script updates itself, one installed by a package manager does not.
const (
	UpdateAuto AutoUpdate = "auto"
	UpdateOn   AutoUpdate = "true"
	UpdateOff  AutoUpdate = "false"
)

// anyAddress is the value of http_server_address that means all IPv4 and IPv6 addresses of the
// host.
const anyAddress = "*"

type meta struct {
	file      string
	sources   map[string]settings.Source
	warnings  []string
	forwarded []ForwardedVar
	proxy     []ForwardedVar
	tempDir   string
	uid       int
}

// ForwardedVar is a host variable given to jobs. Its value is a secret: the agent never sends
// it to the server and masks it in every log.
type ForwardedVar struct {
	Name  string
	Value settings.Secret
}

// Reveal returns the variables with their plain values.
func Reveal(vars []ForwardedVar) map[string]string {
	plain := map[string]string{}
	for _, v := range vars {
		plain[v.Name] = v.Value.Reveal()
	}
	return plain
}

// File returns the path of the configuration file, or "" if none was read.
func (c *Config) File() string { return c.meta.file }

// Warnings returns problems that do not stop the agent, one sentence each.
func (c *Config) Warnings() []string { return c.meta.warnings }

// Source returns the origin of the key's value.
func (c *Config) Source(key string) settings.Source { return c.meta.sources[key] }

// ForwardedEnv returns the host variables given to jobs: those of env_forward_allowlist that
// are set, in its order, and then DOCKER_HOST if it is set.
func (c *Config) ForwardedEnv() []ForwardedVar { return c.meta.forwarded }

// TempDirectory returns shared_volume_directory, or the system's directory for temporary files.
func (c *Config) TempDirectory() string {
	if c.SharedVolumeDirectory != "" {
		return c.SharedVolumeDirectory
	}
	return c.meta.tempDir
}

// UsesOIDC reports whether the agent exchanges an OIDC token for its pool token. The exchanged
// token takes precedence over Token.
func (c *Config) UsesOIDC() bool { return c.OIDCTokenFile != "" }

// HTTPServerListen returns the address of the health server as host:port, or "" if the server is
// disabled.
func (c *Config) HTTPServerListen() string {
	if c.HTTPServerPort == 0 {
		return ""
	}
	host := c.HTTPServerAddress
	if host == anyAddress {
		host = ""
	}
	return net.JoinHostPort(host, strconv.Itoa(c.HTTPServerPort))
}

// Settings returns all effective values in the order of the reference page.
func (c *Config) Settings() []settings.Setting {
	return table(c).Effective(c.meta.sources)
}

// InvalidError is an error in the command line or the configuration, which a retry does not fix.
type InvalidError struct{ err error }

// Invalid marks an error as an [InvalidError].
func Invalid(err error) error { return InvalidError{err} }

func (e InvalidError) Error() string { return e.err.Error() }

func (e InvalidError) Unwrap() error { return e.err }
