package config

import (
	"time"
)

type group string

const (
	groupRequired   group = "Required settings"
	groupOptional   group = "Optional settings"
	groupOIDC       group = "OpenID Connect (OIDC) settings"
	groupPolling    group = "Polling and retry settings"
	groupHealth     group = "Health and observability"
	groupHost       group = "Host, concurrency and trust"
	groupDocker     group = "Docker target"
	groupUpdate     group = "Updates"
	groupEnvOnly    group = "Environment only"
	envPrefix             = "PULUMI_AGENT_"
	typeDeployment        = "deployment"
	typeInsights          = "insights_scan"
	typePolicy            = "policy_evaluation"
	dayLong               = int64(24 * time.Hour)
	defaultPids           = "4096"
	minDockerMemory       = 6 << 20 // the engine's minimum

	lacksKubernetes = "the Kubernetes target"
)

func fields() []field {
	rows := [][]field{
		requiredFields(), optionalFields(), oidcFields(), pollingFields(), healthFields(),
		hostFields(), dockerFields(), updateFields(), environmentFields(),
	}
	var all []field
	for _, row := range rows {
		all = append(all, row...)
	}
	return all
}

func requiredFields() []field {
	return []field{{
		name: "token", env: envPrefix + "TOKEN", kind: kindSecret, group: groupRequired,
		example:     "pul-xxx",
		requirement: "required unless oidc_token_file is set",
		doc: `The access token of the agent pool, shown once when the pool is created.
Keep the file that holds it readable for the agent's user only (chmod 600).`,
		ptr: func(c *Config) any { return &c.Token },
	}}
}

func optionalFields() []field {
	return []field{{
		name: "service_url", env: envPrefix + "SERVICE_URL", kind: kindURL, group: groupOptional,
		def: "https://api.pulumi.com",
		doc: `The control plane to take work from. Trailing slashes are stripped, and a host without a
scheme means https. HTTPS_PROXY, HTTP_PROXY and NO_PROXY of the agent's environment are obeyed, and
given to jobs: network.md in the documentation says how.`,
		ptr: func(c *Config) any { return &c.ServiceURL },
	}, {
		name: "working_directory", env: envPrefix + "WORKING_DIRECTORY", kind: kindPath, group: groupOptional,
		defText: "the directory of the agent's binary, symbolic links followed",
		example: "<location of customer-managed-workflow-agent binary>",
		doc: `The directory to load the runner binaries from: workflow-runner and, for jobs in
containers, the workflow-runner-embeddable of their architecture. A value that names the agent's
binary means the directory it is in.`,
		ptr: func(c *Config) any { return &c.WorkingDirectory },
	}, {
		name: "shared_volume_directory", env: envPrefix + "SHARED_VOLUME_DIRECTORY", kind: kindPath, group: groupOptional,
		defText: "volumes of the engine; for processes a directory below state_directory",
		example: "/var/lib/workflow-agent/shared",
		doc: `The host directory for the per-job directories that are shared with job containers. It
must have the same path for the agent and for the engine. Without it nothing of the host is mounted
into containers, so that the engine may be on another host.`,
		ptr: func(c *Config) any { return &c.SharedVolumeDirectory },
	}, {
		name: "deploy_target", env: envPrefix + "DEPLOY_TARGET", kind: kindString, group: groupOptional,
		def:     string(TargetDocker),
		choices: []string{string(TargetDocker), string(TargetProcess)},
		unbuilt: []string{string(TargetKubernetes)},
		doc: `Where jobs run. docker starts a container for each job. process starts a plain process as
the agent's user, without isolation: for hosts that are themselves disposable, and for trying the
agent without Docker. kubernetes is not in this build.`,
		ptr: func(c *Config) any { return (*string)(&c.DeployTarget) },
	}, {
		name: "single_run", env: envPrefix + "SINGLE_RUN", kind: kindBool, group: groupOptional,
		def: "false",
		doc: `If true, the agent ends once the result of one job is delivered, whatever the result was.`,
		ptr: func(c *Config) any { return &c.SingleRun },
	}, {
		name: "pull_image", env: envPrefix + "PULL_IMAGE", kind: kindBool, group: groupOptional,
		def: "true",
		doc: `If true, the job's image is pulled before each job, and the job fails if the registry
cannot be reached. If false, it is never pulled, and a job whose image is absent fails. The registry
is told the job's own credentials, else those of the docker configuration and credential helpers of
the agent's user. (Docker target only.)`,
		ptr: func(c *Config) any { return &c.PullImage },
	}, {
		name: "enabled_workflow_types", env: envPrefix + "ENABLED_WORKFLOW_TYPES", kind: kindList, group: groupOptional,
		def: typeDeployment + "," + typeInsights + "," + typePolicy, sep: ",", notEmpty: true,
		choices: []string{typeDeployment, typeInsights, typePolicy},
		doc:     `The types of work this agent claims. The variable is comma-separated.`,
		ptr:     func(c *Config) any { return &c.EnabledWorkflowTypes },
	}, {
		name: "env_forward_allowlist", env: envPrefix + "ENV_FORWARD_ALLOWLIST", kind: kindList, group: groupOptional,
		def: "", sep: " ",
		doc: `The names of host environment variables that are given to jobs, such as the credentials
of a cloud provider. Names are case-sensitive. The values win over variables of the same name from
the server, are never sent to the server, and are masked in every log; values shorter than six
characters cannot be masked. DOCKER_HOST is always given. The variable is space-separated.`,
		ptr: func(c *Config) any { return &c.EnvForwardAllowlist },
	}}
}

func oidcFields() []field {
	return []field{{
		name: "oidc_token_file", env: envPrefix + "OIDC_TOKEN_FILE", kind: kindPath, group: groupOIDC,
		example: "/var/run/secrets/oidc/token",
		doc: `The file with the OIDC token that is exchanged for a token of the pool. It is read again
for each exchange: when most of the life of the pool's token has passed, and when the server
refuses it. If it is set, token is not used. The file holds the token and nothing else and may be
written by its owner only; the agent waits for a file that does not exist yet.`,
		ptr: func(c *Config) any { return &c.OIDCTokenFile },
	}, {
		name: "organization_name", env: envPrefix + "ORGANIZATION_NAME", kind: kindString, group: groupOIDC,
		example: "acme", requirement: "required if oidc_token_file is set",
		doc: `The organization the pool belongs to. The exchange asks for a token of it.`,
		ptr: func(c *Config) any { return &c.OrganizationName },
	}, {
		name: "runner_pool_id", env: envPrefix + "RUNNER_POOL_ID", kind: kindString, group: groupOIDC,
		example: "7c43cf3d-7f0e-4f0f-9a76-0a2c0c5e1f11", requirement: "required if oidc_token_file is set",
		doc: `The ID of the pool to join with the OIDC token. With token, the pool follows from that.`,
		ptr: func(c *Config) any { return &c.RunnerPoolID },
	}, {
		name: "token_expiration", env: envPrefix + "TOKEN_EXPIRATION", kind: kindSeconds, group: groupOIDC,
		defText: "the server's choice", example: "2h", min: int64(time.Second), max: 366 * dayLong,
		doc: `The lifetime to ask for when the OIDC token is exchanged: a duration, or a bare number
of seconds.`,
		ptr: func(c *Config) any { return &c.TokenExpiration },
	}}
}

func pollingFields() []field {
	return []field{{
		name: "polling_interval", env: envPrefix + "POLLING_INTERVAL", kind: kindDuration, group: groupPolling,
		def: "1m", min: int64(100 * time.Millisecond), max: dayLong,
		doc: `The pause between two looks for new work. A Retry-After of the server supersedes it, and
a server that holds the poll open needs no pause at all.`,
		ptr: func(c *Config) any { return &c.PollingInterval },
	}, {
		name: "polling_interval_override", env: envPrefix + "POLLING_INTERVAL_OVERRIDE", kind: kindBool, group: groupPolling,
		def: "false",
		doc: `If true, polling_interval is kept to the letter: Retry-After is ignored and the server is
not asked to hold the poll open.`,
		ptr: func(c *Config) any { return &c.PollingIntervalOverride },
	}, {
		name: "job_status_loop_interval", env: envPrefix + "JOB_STATUS_LOOP_INTERVAL", kind: kindDuration, group: groupPolling,
		def: "30s", min: int64(100 * time.Millisecond), max: dayLong,
		doc: `The pause between two looks at the status of a running job, which is how a cancelled job
is noticed.`,
		ptr: func(c *Config) any { return &c.JobStatusLoopInterval },
	}, {
		name: "request_timeout", env: envPrefix + "REQUEST_TIMEOUT", kind: kindDuration, group: groupPolling,
		def: "30s", min: int64(time.Second), max: int64(time.Hour),
		doc: `The time limit of one API call. Transfers of logs and files are limited by progress
instead.`,
		ptr: func(c *Config) any { return &c.RequestTimeout },
	}, {
		name: "request_retry_count", env: envPrefix + "REQUEST_RETRY_COUNT", kind: kindInt, group: groupPolling,
		def: "2", min: 0, max: 100,
		doc: `How often an API call is repeated after a transient failure or a rate limit.`,
		ptr: func(c *Config) any { return &c.RequestRetryCount },
	}, {
		name: "request_retry_wait", env: envPrefix + "REQUEST_RETRY_WAIT", kind: kindDuration, group: groupPolling,
		def: "20s", min: int64(time.Millisecond), max: dayLong,
		doc: `The pause before the first repetition; it grows with each further one.`,
		ptr: func(c *Config) any { return &c.RequestRetryWait },
	}, {
		name: "request_retry_max_wait", env: envPrefix + "REQUEST_RETRY_MAX_WAIT", kind: kindDuration, group: groupPolling,
		def: "2m", min: int64(time.Millisecond), max: dayLong,
		doc: `The longest pause between repetitions; not below request_retry_wait.`,
		ptr: func(c *Config) any { return &c.RequestRetryMaxWait },
	}, {
		name: "circuit_breaker_failures", env: envPrefix + "CIRCUIT_BREAKER_FAILURES", kind: kindInt, group: groupPolling,
		def: "2", min: 1, max: 1000,
		doc: `How many API calls in a row must fail, repetitions included, before the agent stops
polling and only probes now and then.`,
		ptr: func(c *Config) any { return &c.CircuitBreakerFailures },
	}, {
		name: "circuit_breaker_timeout", env: envPrefix + "CIRCUIT_BREAKER_TIMEOUT", kind: kindDuration, group: groupPolling,
		def: "10m", min: int64(time.Millisecond), max: dayLong,
		doc: `The time after which polling starts again; a probe that succeeds ends it earlier.`,
		ptr: func(c *Config) any { return &c.CircuitBreakerTimeout },
	}}
}

func healthFields() []field {
	return []field{{
		name: "http_server_port", env: envPrefix + "HTTP_SERVER_PORT", kind: kindInt, group: groupHealth,
		def: "8080", min: 0, max: 65535,
		doc: `The port of the local HTTP server with /healthz and /metrics; 0 turns it off. If the port
is taken, the agent warns and works without the server.`,
		ptr: func(c *Config) any { return &c.HTTPServerPort },
	}, {
		name: "http_server_address", env: envPrefix + "HTTP_SERVER_ADDRESS", kind: kindString, group: groupHealth,
		defText: "127.0.0.1; in Kubernetes all addresses", example: "127.0.0.1",
		doc: `The address the HTTP server listens on; "*" is all addresses. The server asks for no
credentials.`,
		ptr: func(c *Config) any { return &c.HTTPServerAddress },
	}, {
		name: "health_threshold", env: envPrefix + "HEALTH_THRESHOLD", kind: kindDuration, group: groupHealth,
		defText: "twice the longer of polling_interval and job_status_loop_interval", example: "2m",
		min: int64(100 * time.Millisecond), max: 7 * dayLong,
		doc: `How long the agent may go without progress before /healthz says that it is unhealthy.`,
		ptr: func(c *Config) any { return &c.HealthThreshold },
	}, {
		name: "syslog", env: envPrefix + "SYSLOG", kind: kindBool, group: groupHealth,
		def: "false",
		doc: `If true, the agent's log goes to syslog instead of stderr.`,
		ptr: func(c *Config) any { return &c.Syslog },
	}, {
		name: "log_format", env: envPrefix + "LOG_FORMAT", kind: kindString, group: groupHealth,
		def: string(LogText), choices: []string{string(LogText), string(LogJSON)},
		doc: `The form of the agent's own log.`,
		ptr: func(c *Config) any { return (*string)(&c.LogFormat) },
	}, {
		name: "log_job_output", env: envPrefix + "LOG_JOB_OUTPUT", kind: kindBool, group: groupHealth,
		def: "true",
		doc: `If true, the log of jobs, secrets masked, also goes to the agent's own output.`,
		ptr: func(c *Config) any { return &c.LogJobOutput },
	}}
}

func hostFields() []field {
	return []field{{
		name: "max_concurrent_jobs", env: envPrefix + "MAX_CONCURRENT_JOBS", kind: kindInt, group: groupHost,
		def: "1", min: 1, max: 1000,
		doc: `How many jobs run at a time. With single_run it is 1.`,
		ptr: func(c *Config) any { return &c.MaxConcurrentJobs },
	}, {
		name: "state_directory", env: envPrefix + "STATE_DIRECTORY", kind: kindPath, group: groupHost,
		defText: "$STATE_DIRECTORY of the service manager; else /var/lib/workflow-agent for root and " +
			"$XDG_STATE_HOME/workflow-agent or ~/.local/state/workflow-agent for other users",
		example: "/var/lib/workflow-agent",
		doc: `The directory of what must survive a restart: the journal of jobs and logs that are not
delivered yet. Several agents may share it.`,
		ptr: func(c *Config) any { return &c.StateDirectory },
	}, {
		name: "allowed_images", env: envPrefix + "ALLOWED_IMAGES", kind: kindList, group: groupHost,
		sep: ",", notEmpty: true,
		defText: "every image", example: "[pulumi/*, registry.example.com/team/**]",
		doc: `Patterns of the job images this agent runs; a job with another image is refused. A name
without a host means Docker Hub. * matches within one path element, ** across elements; a pattern
without a tag matches every tag and digest, one with a tag matches no digest. The variable is comma-separated.`,
		ptr: func(c *Config) any { return &c.AllowedImages },
	}, {
		name: "allowed_repositories", env: envPrefix + "ALLOWED_REPOSITORIES", kind: kindList, group: groupHost,
		sep: ",", notEmpty: true,
		defText: "every repository", example: "[github.com/acme/*]",
		doc: `Patterns of the git repositories this agent deploys from, written host/path without
scheme, user and .git; a job from another repository is refused. * matches within one path
element, ** across elements; a pattern that begins with * is written in quotes. This binds the source of the deployment only: its pre-run commands
are free shell and can fetch what they like. The variable is comma-separated.`,
		ptr: func(c *Config) any { return &c.AllowedRepositories },
	}, {
		name: "ca_certificate_file", env: envPrefix + "CA_CERTIFICATE_FILE", kind: kindPath, group: groupHost,
		example: "/etc/ssl/certs/company-ca.pem",
		doc: `A PEM file with certificate authorities that are trusted besides the system's: by the
agent, and in its jobs by git, pulumi and its plugins, and what Node, Python, OpenSSL and the usual
cloud tools run.`,
		ptr: func(c *Config) any { return &c.CACertificateFile },
	}}
}

func dockerFields() []field {
	return []field{{
		name: "docker_network", env: envPrefix + "DOCKER_NETWORK", kind: kindString, group: groupDocker,
		defText: "the engine's default bridge; the host's network if the server is on loopback", example: "deployments",
		doc: `The name of the network that job containers join.`,
		ptr: func(c *Config) any { return &c.DockerNetwork },
	}, {
		name: "docker_memory", env: envPrefix + "DOCKER_MEMORY", kind: kindBytes, group: groupDocker,
		defText: "no limit", example: "4g", min: minDockerMemory,
		doc: `The memory limit of a job container, such as 512m or 4g.`,
		ptr: func(c *Config) any { return &c.DockerMemory },
	}, {
		name: "docker_cpus", env: envPrefix + "DOCKER_CPUS", kind: kindCPUs, group: groupDocker,
		defText: "no limit", example: "1.5",
		doc: `The CPU limit of a job container, in CPUs.`,
		ptr: func(c *Config) any { return &c.DockerCPUs },
	}, {
		name: "docker_pids_limit", env: envPrefix + "DOCKER_PIDS_LIMIT", kind: kindInt, group: groupDocker,
		def: defaultPids, min: 0, max: 4194304,
		doc: `The limit of processes and threads in a job container, which stops fork bombs; 0 removes
the limit.`,
		ptr: func(c *Config) any { return &c.DockerPidsLimit },
	}}
}

func updateFields() []field {
	return []field{{
		name: "auto_update", env: envPrefix + "AUTO_UPDATE", kind: kindString, group: groupUpdate,
		def:     string(UpdateAuto),
		choices: []string{string(UpdateAuto), string(UpdateOn), string(UpdateOff)},
		doc: `Whether the agent installs new signed releases of itself. auto does so in a service that
install.sh has installed; elsewhere the log says once per release how to update. true warns where the
agent cannot update itself. What dpkg, rpm or Homebrew installed, they update.`,
		ptr: func(c *Config) any { return (*string)(&c.AutoUpdate) },
	}, {
		name: "update_channel", env: envPrefix + "UPDATE_CHANNEL", kind: kindString, group: groupUpdate,
		def: "stable", choices: []string{"stable", "beta"},
		doc: `Which releases to take.`,
		ptr: func(c *Config) any { return &c.UpdateChannel },
	}, {
		name: "update_url", env: envPrefix + "UPDATE_URL", kind: kindURL, group: groupUpdate,
		defText: "where this build was released", example: "https://releases.example.com/workflow-agent",
		doc: `Where releases are looked for: a repository of GitHub, or any HTTP directory with a mirror,
such as https://SERVER/releases of a workflow-server. A mirror need not be trusted: what it serves is
signed.`,
		ptr: func(c *Config) any { return &c.UpdateURL },
	}}
}

func environmentFields() []field {
	return []field{{
		name: "image", env: envPrefix + "IMAGE", kind: kindString, group: groupEnvOnly, envOnly: true, lacks: lacksKubernetes,
		defText: "the image of the agent's own release",
		doc:     `The image that helper containers of worker pods are made from. (Kubernetes target only.)`,
		ptr:     func(c *Config) any { return &c.AgentImage },
	}, {
		name: "image_pull_policy", env: envPrefix + "IMAGE_PULL_POLICY", kind: kindString, group: groupEnvOnly, envOnly: true, lacks: lacksKubernetes,
		def: "IfNotPresent", choices: []string{"Always", "IfNotPresent", "Never"},
		doc: `The pull policy of worker pods. (Kubernetes target only.)`,
		ptr: func(c *Config) any { return &c.ImagePullPolicy },
	}, {
		name: "service_account_name", env: envPrefix + "SERVICE_ACCOUNT_NAME", kind: kindString, group: groupEnvOnly, envOnly: true, lacks: lacksKubernetes,
		defText: "the namespace's default",
		doc:     `The service account of worker pods. (Kubernetes target only.)`,
		ptr:     func(c *Config) any { return &c.ServiceAccountName },
	}, {
		name: "num_cpus", env: envPrefix + "NUM_CPUS", kind: kindString, group: groupEnvOnly, envOnly: true, lacks: lacksKubernetes,
		defText: "no request",
		doc:     `The CPU request of worker pods. (Kubernetes target only.)`,
		ptr:     func(c *Config) any { return &c.NumCPUs },
	}, {
		name: "mem_quantity", env: envPrefix + "MEM_QUANTITY", kind: kindString, group: groupEnvOnly, envOnly: true, lacks: lacksKubernetes,
		defText: "no request",
		doc:     `The memory request of worker pods, in Gi. (Kubernetes target only.)`,
		ptr:     func(c *Config) any { return &c.MemQuantity },
	}, {
		name: "debug_pod", env: envPrefix + "DEBUG_POD", kind: kindBool, group: groupEnvOnly, envOnly: true, lacks: lacksKubernetes,
		def: "false",
		doc: `If true, worker pods are kept after their job. (Kubernetes target only.)`,
		ptr: func(c *Config) any { return &c.DebugPod },
	}, {
		name: "override_image_reference", env: "PULUMI_DEPLOY_OVERRIDE_IMAGE_REFERENCE", kind: kindString, group: groupEnvOnly, envOnly: true,
		defText: "the image each job asks for",
		doc:     `The image that every job runs in, whatever it asks for.`,
		ptr:     func(c *Config) any { return &c.OverrideImageReference },
	}, {
		name: "docker_host", env: "DOCKER_HOST", kind: kindString, group: groupEnvOnly, envOnly: true,
		defText: "the engine of the current docker context, then the usual sockets",
		doc: `The Docker engine to use, such as unix:///run/docker.sock or tcp://host:2376; TLS takes
DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH, and ssh:// is not supported. It is also given to jobs.`,
		ptr: func(c *Config) any { return &c.DockerHost },
	}}
}
