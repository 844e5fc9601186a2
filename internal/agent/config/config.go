// Package config provides the agent's configuration: one struct and its table of settings.
//
// [Load] finds and reads the file, applies the environment, which takes precedence, and fills in
// the defaults that depend on the machine. [Config.Validate] reports whether an agent can run with
// the result. The two are separate because some commands show, check or complete an incomplete
// configuration. No other package of the agent reads settings from the environment.
package config

import (
	"net"
	"strconv"
	"time"

	"workflowagent/internal/agent/executor/docker"
	"workflowagent/internal/agent/executor/kubernetes/podspec"
	"workflowagent/internal/agent/mirror"
	"workflowagent/internal/protocol"
	"workflowagent/internal/settings"
)

// Config is the agent's configuration. Its parts are handed over as a whole to the packages that
// declare them. Each exported field, also of a part, has exactly one row in the table of settings
// (fields.go), which documents the field. A test enforces this.
type Config struct {
	Token settings.Secret

	// ServiceURL has a scheme, a host and optionally a path, without a trailing slash.
	ServiceURL string
	// WorkingDirectory is the absolute path of the directory with the runner binaries.
	WorkingDirectory string
	// SharedVolumeDirectory is the absolute path of a host directory to share with job containers,
	// or empty. See [Config.TempDirectory].
	SharedVolumeDirectory string
	DeployTarget          DeployTarget
	// EnabledWorkflowTypes is never empty in a valid configuration.
	EnabledWorkflowTypes []string
	// EnvForwardAllowlist names the host variables that jobs receive. See [Config.ForwardedEnv].
	EnvForwardAllowlist []string

	OIDCTokenFile    string
	OrganizationName string
	RunnerPoolID     string
	// TokenExpiration is the token lifetime to request; zero leaves the lifetime to the server.
	TokenExpiration time.Duration

	// HTTPServerPort is the port of the health server; zero disables the server.
	HTTPServerPort    int
	HTTPServerAddress string
	// HealthThreshold is the maximum time since the last activity of a healthy agent. Load derives
	// it from the intervals if it is not set.
	HealthThreshold time.Duration
	Syslog          bool
	LogFormat       LogFormat

	// StateDirectory is the absolute path of the directory for the journal and the log spools. See
	// [Config.PrepareStateDirectory].
	StateDirectory string
	// AllowedImages lists patterns for job images; nil allows all images.
	AllowedImages []string
	// AllowedRepositories lists patterns for repository URLs; nil allows all repositories.
	AllowedRepositories []string
	// CACertificateFile is a PEM file of certificate authorities to trust in addition to the
	// system's authorities.
	CACertificateFile string

	AutoUpdate    AutoUpdate
	UpdateChannel string
	// UpdateURL is the URL of the releases. If it is empty, the agent uses the URL at which this
	// build was released.
	UpdateURL string

	Agent   Agent
	Mirrors Mirrors
	// WorkspaceMaxSize and WorkspaceMaxAge bound what the agent keeps for later jobs if
	// Agent.Workspaces is set.
	WorkspaceMaxSize int64
	WorkspaceMaxAge  time.Duration

	Retry   protocol.Retry
	Breaker protocol.Breaker
	Docker  docker.Config
	Mirror  mirror.Config
	// Pods are the worker pods. If their namespace is empty, they run in the agent's own namespace,
	// or in that of the kubeconfig.
	Pods podspec.Config
	// PodStartTimeout is how long a worker pod may take to be scheduled and to fetch its images.
	PodStartTimeout time.Duration
	// DebugPodTTL is how long a worker pod remains after its job if Pods.DebugPod is set.
	DebugPodTTL time.Duration

	meta meta
}

// Agent is the part of the configuration that only the package agent uses. That package cannot declare
// it, because the agent's parts do not import the agent.
type Agent struct {
	MaxConcurrentJobs int
	SingleRun         bool
	LogJobOutput      bool
	// OverrideImageReference replaces the jobs' images unless it is empty.
	OverrideImageReference string
	// PollingInterval is the pause between polls if the server sends no Retry-After header.
	PollingInterval time.Duration
	// PollingIntervalOverride disables Retry-After and long polls.
	PollingIntervalOverride bool
	// JobStatusLoopInterval is the pause between two checks of a running job's status.
	JobStatusLoopInterval time.Duration
	RequestTimeout        time.Duration
	// Workspaces lets jobs use the workspaces that their definitions name.
	Workspaces bool
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
// that was installed by the install script updates itself, but an agent that was installed by a
// package manager does not.
const (
	UpdateAuto AutoUpdate = "auto"
	UpdateOn   AutoUpdate = "true"
	UpdateOff  AutoUpdate = "false"
)

// anyAddress is the value of http_server_address for all IPv4 and IPv6 addresses of the host.
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

// ForwardedVar is a host variable that jobs receive. Its value is a secret: the agent never sends
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

// Warnings returns the problems that do not prevent the agent from starting, one sentence each.
func (c *Config) Warnings() []string { return c.meta.warnings }

// Source returns the origin of the key's value.
func (c *Config) Source(key string) settings.Source { return c.meta.sources[key] }

// ForwardedEnv returns the host variables that jobs receive: first the set variables of
// env_forward_allowlist in the list's order, then DOCKER_HOST if it is set.
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

// Settings returns all effective values in the order of the reference documentation.
func (c *Config) Settings() []settings.Setting {
	return table(c).Effective(c.meta.sources)
}

// InvalidError is an error in the command line or the configuration, which a retry does not fix.
type InvalidError = settings.InvalidError

// Invalid marks an error as an [InvalidError].
func Invalid(err error) error { return settings.Invalid(err) }
