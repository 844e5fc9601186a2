// Package config is the agent's configuration: one struct, one field table, and everything that
// follows from the table (defaults, strict YAML, environment, validation, the sample file, the
// reference page and the help text).
//
// [Load] finds the file, reads it strictly, lets the environment win over it and fills in what
// depends on the machine. [Config.Validate] then says whether an agent can run with the result;
// the two are apart for the commands that complete, show or examine a configuration that no agent
// can run with yet. Nothing else in the agent reads the environment.
package config

//go:generate go run ./gen ../../..

import (
	"net"
	"strconv"
	"time"
)

// Config is the agent's whole configuration. Every exported field has exactly one row in the
// field table (fields.go), which also documents it; a test keeps the two in step.
type Config struct {
	// Token is the agent pool's access token.
	Token Secret

	// ServiceURL is the control plane's base URL: scheme and host, perhaps a path, without a
	// trailing slash.
	ServiceURL string
	// WorkingDirectory is the absolute directory that holds the runner binaries.
	WorkingDirectory string
	// SharedVolumeDirectory is the host directory for what is shared with job containers, as an
	// absolute path. It is empty if it was not set: see [Config.TempDirectory].
	SharedVolumeDirectory string
	// DeployTarget says where jobs run.
	DeployTarget DeployTarget
	// SingleRun ends the agent after one job.
	SingleRun bool
	// PullImage pulls the job's image before each job; false never pulls.
	PullImage bool
	// EnabledWorkflowTypes are the types of work to claim; never empty in a valid configuration.
	EnabledWorkflowTypes []string
	// EnvForwardAllowlist names the host variables given to jobs: see [Config.ForwardedEnv].
	EnvForwardAllowlist []string

	// OIDCTokenFile is the file with the OIDC token to exchange for a pool token.
	OIDCTokenFile string
	// OrganizationName is the organization of the pool.
	OrganizationName string
	// RunnerPoolID is the pool to join with an OIDC token.
	RunnerPoolID string
	// TokenExpiration is the lifetime to ask for; zero leaves it to the server.
	TokenExpiration time.Duration

	// PollingInterval is the pause between polls that no Retry-After supersedes.
	PollingInterval time.Duration
	// PollingIntervalOverride ignores Retry-After and the long poll.
	PollingIntervalOverride bool
	// JobStatusLoopInterval is the pause between two looks at a running job's status.
	JobStatusLoopInterval time.Duration
	// RequestTimeout bounds each API call.
	RequestTimeout time.Duration
	// RequestRetryCount is how often a failed API call is repeated; zero means never.
	RequestRetryCount int
	// RequestRetryWait is the first pause between repetitions.
	RequestRetryWait time.Duration
	// RequestRetryMaxWait caps the pause between repetitions.
	RequestRetryMaxWait time.Duration
	// CircuitBreakerFailures is how many failed calls in a row open the breaker.
	CircuitBreakerFailures int
	// CircuitBreakerTimeout is how long the breaker stays open.
	CircuitBreakerTimeout time.Duration

	// HTTPServerPort is the port of the health server; zero turns it off.
	HTTPServerPort int
	// HTTPServerAddress is the host or address the health server listens on.
	HTTPServerAddress string
	// HealthThreshold is how old the last sign of activity may be in a healthy agent. Load
	// derives it from the intervals if it was not set.
	HealthThreshold time.Duration
	// Syslog sends the agent's log to syslog instead of stderr.
	Syslog bool
	// LogFormat is the form of the agent's own log.
	LogFormat LogFormat
	// LogJobOutput repeats the masked log of jobs in the agent's own output.
	LogJobOutput bool

	// MaxConcurrentJobs is how many jobs the agent runs at a time.
	MaxConcurrentJobs int
	// StateDirectory is the absolute directory of journal and spool:
	// see [Config.PrepareStateDirectory].
	StateDirectory string
	// AllowedImages are the patterns of job images this agent runs; nil allows all of them.
	AllowedImages []string
	// AllowedRepositories are the patterns of git URLs this agent deploys from; nil allows all.
	AllowedRepositories []string
	// CACertificateFile is a PEM file with certificate authorities to trust besides the system's.
	CACertificateFile string

	// DockerNetwork is the network of job containers; empty leaves the choice to the executor.
	DockerNetwork string
	// DockerMemory is the memory limit of a job container in bytes; zero is no limit.
	DockerMemory int64
	// DockerCPUs is the CPU limit of a job container in CPUs; zero is no limit.
	DockerCPUs float64
	// DockerPidsLimit is the limit of processes and threads in a job container; zero is no limit.
	DockerPidsLimit int64

	// AutoUpdate says whether the agent installs new releases of itself.
	AutoUpdate AutoUpdate
	// UpdateChannel is the channel releases are taken from.
	UpdateChannel string
	// UpdateURL is where releases are looked for; empty is where this build was released.
	UpdateURL string

	// AgentImage is the image helper containers of worker pods are made from.
	AgentImage string
	// ImagePullPolicy is the pull policy of worker pods.
	ImagePullPolicy string
	// ServiceAccountName is the service account of worker pods.
	ServiceAccountName string
	// NumCPUs is the CPU request of worker pods, as a Kubernetes quantity.
	NumCPUs string
	// MemQuantity is the memory request of worker pods in Gi.
	MemQuantity string
	// DebugPod keeps the worker pod after its job.
	DebugPod bool
	// OverrideImageReference replaces the image of every job.
	OverrideImageReference string
	// DockerHost is the host's DOCKER_HOST; jobs always get it if it is set.
	DockerHost string

	meta meta
}

// DeployTarget is the kind of place where jobs run.
type DeployTarget string

// The deploy targets.
const (
	TargetDocker     DeployTarget = "docker"
	TargetKubernetes DeployTarget = "kubernetes"
	TargetProcess    DeployTarget = "process"
)

// LogFormat is the form of the agent's own log.
type LogFormat string

// The log formats.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// AutoUpdate says whether the agent updates itself.
type AutoUpdate string

// The choices of auto_update. With auto the answer depends on who owns the installed files: the
// install script's are updated, a package manager's are not.
const (
	UpdateAuto AutoUpdate = "auto"
	UpdateOn   AutoUpdate = "true"
	UpdateOff  AutoUpdate = "false"
)

// anyAddress is the http_server_address that stands for all addresses of the host, of IPv4 and
// IPv6 alike.
const anyAddress = "*"

// meta is what a Config knows about itself beside its values.
type meta struct {
	file      string
	sources   map[string]Source
	warnings  []string
	forwarded []ForwardedVar
	proxy     []ForwardedVar
	tempDir   string
	uid       int
}

// ForwardedVar is a host variable that jobs are given. Its value is a secret: it is never sent to
// the server and masked in every log.
type ForwardedVar struct {
	Name  string
	Value Secret
}

// File returns the configuration file that was read, or "" if there was none.
func (c *Config) File() string { return c.meta.file }

// Warnings returns what an operator should know and nothing has to stop for, one sentence each.
func (c *Config) Warnings() []string { return c.meta.warnings }

// Source returns where the value of the key comes from.
func (c *Config) Source(key string) Source {
	if source, ok := c.meta.sources[key]; ok {
		return source
	}
	return Source{Kind: FromDefault}
}

// ForwardedEnv returns the host variables that jobs are given: the set ones of
// env_forward_allowlist in its order, and DOCKER_HOST if the host has one.
func (c *Config) ForwardedEnv() []ForwardedVar { return c.meta.forwarded }

// TempDirectory returns shared_volume_directory, or the system's directory for temporary files.
func (c *Config) TempDirectory() string {
	if c.SharedVolumeDirectory != "" {
		return c.SharedVolumeDirectory
	}
	return c.meta.tempDir
}

// UsesOIDC reports whether the pool token is exchanged for an OIDC token; it wins over token.
func (c *Config) UsesOIDC() bool { return c.OIDCTokenFile != "" }

// HTTPServerListen returns the address the health server listens on as host:port, or "" if it is
// turned off.
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

// SourceKind is the kind of place a value comes from.
type SourceKind string

// The places a value can come from, weakest first.
const (
	FromDefault SourceKind = "default"
	FromFile    SourceKind = "file"
	FromEnv     SourceKind = "env"
)

// Source is the place a value comes from.
type Source struct {
	Kind SourceKind
	// File and Line are set for FromFile. Lines count from 1.
	File string
	Line int
	// Env is the name of the variable, set for FromEnv.
	Env string
}

// String returns "default", "FILE:LINE" or "env NAME".
func (s Source) String() string {
	switch s.Kind {
	case FromFile:
		return s.File + ":" + strconv.Itoa(s.Line)
	case FromEnv:
		return "env " + s.Env
	default:
		return string(FromDefault)
	}
}

// Setting is one effective value, ready to be shown.
type Setting struct {
	Key    string
	Value  string // [REDACTED] for a secret that is set
	Source Source
}

// Settings returns all effective values in the order of the reference page.
func (c *Config) Settings() []Setting {
	var settings []Setting
	for _, f := range fields() {
		settings = append(settings, Setting{Key: f.name, Value: f.show(c), Source: c.Source(f.name)})
	}
	return settings
}
