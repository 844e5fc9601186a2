package config

import (
	"errors"
	"strings"
	"time"

	"workflowagent/internal/settings"
)

const (
	envPrefix       = "PULUMI_AGENT_"
	typeDeployment  = "deployment"
	typeInsights    = "insights_scan"
	typePolicy      = "policy_evaluation"
	dayLong         = int64(24 * time.Hour)
	minDockerMemory = 6 << 20 // the engine's minimum
)

// Table returns the table of the agent's settings, bound to an empty configuration.
func Table() *settings.Table { return table(&Config{}) }

func table(c *Config) *settings.Table {
	t := settings.NewTable(
		envPrefix,
		settings.Group{Title: "Required settings", Fields: requiredFields(c)},
		settings.Group{Title: "Optional settings", Fields: optionalFields(c)},
		settings.Group{Title: "OpenID Connect (OIDC) settings", Fields: oidcFields(c)},
		settings.Group{Title: "Polling and retry settings", Fields: pollingFields(c)},
		settings.Group{Title: "Health and observability", Fields: healthFields(c)},
		settings.Group{Title: "Host, concurrency and trust", Fields: hostFields(c)},
		settings.Group{Title: "Workspaces and mirrors", Fields: append(workspaceFields(c), mirrorFields(c)...)},
		settings.Group{Title: "Docker target", Fields: dockerFields(c)},
		settings.Group{Title: "Kubernetes target", Fields: kubernetesFields(c)},
		settings.Group{Title: "Updates", Fields: updateFields(c)},
		settings.Group{Title: "Environment only", Fields: append(podFields(c), environmentFields(c)...), EnvOnly: true},
	)
	t.Obsolete = map[string]string{
		"version":                     "",
		"workflow_runners_directory":  obsoleteRunners,
		"workflow_runners_embeddable": obsoleteRunners,
	}
	t.Refuse = refuse
	return t
}

func requiredFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "token", Value: &c.Token, Example: "pul-xxx",
		Requirement: "required unless oidc_token_file is set",
		Doc: `The access token of the agent pool, shown once when the pool is created. Let only the
agent's user read the file that contains it (chmod 600).`,
	}}
}

func optionalFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "service_url", Value: (*settings.URL)(&c.ServiceURL), Default: "https://api.pulumi.com",
		Doc: `The URL of the control plane. A host without a scheme means https, or http on loopback.
For proxies, see network.md.`,
	}, {
		Key: "working_directory", Value: (*settings.Path)(&c.WorkingDirectory),
		DefaultText: "the directory of the agent's binary, symbolic links followed",
		Example:     "<location of customer-managed-workflow-agent binary>",
		Doc: `The directory that contains workflow-runner and, for jobs in containers, the
workflow-runner-embeddable for their architecture. Instead of the directory, the path of the agent's
binary in it can be given.`,
	}, {
		Key: "shared_volume_directory", Value: (*settings.Path)(&c.SharedVolumeDirectory),
		DefaultText: "volumes of the engine; for processes a directory below state_directory",
		Example:     "/var/lib/workflow-agent/shared",
		Doc: `The host directory in which the agent creates the jobs' directories, which containers
mount. Its path must be the same for the agent and for the engine. Without it, containers mount no host
directory, and the engine may be on another host.`,
	}, {
		Key: "deploy_target", Value: (*string)(&c.DeployTarget), Default: string(TargetDocker),
		Choices: []string{string(TargetDocker), string(TargetKubernetes), string(TargetProcess)},
		Check:   checkTarget,
		Doc: `Where each job runs. docker: in a container. kubernetes: in a pod. process: in a process
of the agent's user, without isolation; use it only on disposable hosts and for trials.`,
	}, {
		Key: "single_run", Value: &c.Agent.SingleRun, Default: "false",
		Doc: `If true, the agent exits after it has delivered the result of one job.`,
	}, {
		Key: "pull_image", Value: &c.Docker.PullImage, Default: "true",
		Doc: `If true, the agent pulls the image before each job, and the job fails if the registry
cannot be reached. If false, a job whose image is absent fails. The registry receives the job's
credentials, or else those of the docker configuration and credential helpers of the agent's user.
(Docker target only.)`,
	}, {
		Key: "enabled_workflow_types", Value: &c.EnabledWorkflowTypes,
		Default: typeDeployment + "," + typeInsights + "," + typePolicy, Separator: ",", NotEmpty: true,
		Choices: []string{typeDeployment, typeInsights, typePolicy},
		Doc: `The types of work that this agent may claim, of which one must be deployment or
policy_evaluation. An agent with only policy_evaluation is dedicated to policy evaluations. The agent cannot
run insights_scan and does not announce it, but configurations that name it stay valid.`,
	}, {
		Key: "env_forward_allowlist", Value: &c.EnvForwardAllowlist, Separator: " ",
		Doc: `The case-sensitive names of the agent's environment variables that jobs receive, such as
cloud credentials. The values override the server's variables, never reach the server, and are masked in
every log if they have at least six characters. Jobs always receive DOCKER_HOST.`,
	}}
}

func oidcFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "oidc_token_file", Value: (*settings.Path)(&c.OIDCTokenFile), Example: "/var/run/secrets/oidc/token",
		Doc: `The file with the OIDC token. The agent exchanges it for a pool token, and needs no token
setting. The file must contain only the OIDC token and be writable only by its owner. The agent
reads it before each exchange, and waits if it does not exist yet.`,
	}, {
		Key: "organization_name", Value: &c.OrganizationName,
		Example: "acme", Requirement: "required if oidc_token_file is set",
		Doc: `The name of the pool's organization.`,
	}, {
		Key: "runner_pool_id", Value: &c.RunnerPoolID,
		Example: "7c43cf3d-7f0e-4f0f-9a76-0a2c0c5e1f11", Requirement: "required if oidc_token_file is set",
		Doc: `The ID of the pool.`,
	}, {
		Key: "token_expiration", Value: (*settings.Seconds)(&c.TokenExpiration),
		DefaultText: "the server's choice", Example: "2h", Min: int64(time.Second), Max: 366 * dayLong,
		Doc: `The lifetime of the pool token that the agent requests in the exchange.`,
	}}
}

func pollingFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "polling_interval", Value: &c.Agent.PollingInterval,
		Default: "1m", Min: int64(100 * time.Millisecond), Max: dayLong,
		Doc: `The time between two polls, unless the server sends Retry-After. If the server holds polls
open, the agent polls again at once.`,
	}, {
		Key: "polling_interval_override", Value: &c.Agent.PollingIntervalOverride, Default: "false",
		Doc: `If true, the agent always waits for polling_interval: it ignores Retry-After and never
asks the server to hold a poll open.`,
	}, {
		Key: "job_status_loop_interval", Value: &c.Agent.JobStatusLoopInterval,
		Default: "30s", Min: int64(100 * time.Millisecond), Max: dayLong,
		Doc: `The time between two status checks of a running job, which detect a cancellation.`,
	}, {
		Key: "request_timeout", Value: &c.Agent.RequestTimeout,
		Default: "30s", Min: int64(time.Second), Max: int64(time.Hour),
		Doc: `The time limit of one API call. Transfers of logs and files have no time limit, but
fail without progress.`,
	}, {
		Key: "request_retry_count", Value: &c.Retry.Count, Default: "2", Max: 100,
		Doc: `How often the agent retries an API call after a transient failure or a rate limit.`,
	}, {
		Key: "request_retry_wait", Value: &c.Retry.Wait,
		Default: "20s", Min: int64(time.Millisecond), Max: dayLong,
		Doc: `The delay before the first retry. It increases with each further retry.`,
	}, {
		Key: "request_retry_max_wait", Value: &c.Retry.MaxWait,
		Default: "2m", Min: int64(time.Millisecond), Max: dayLong,
		Doc: `The longest delay between retries. It must be at least request_retry_wait.`,
	}, {
		Key: "circuit_breaker_failures", Value: &c.Breaker.Failures, Default: "2", Min: 1, Max: 1000,
		Doc: `The number of consecutive failed API calls, including retries, after which the agent only
probes the server instead of polling.`,
	}, {
		Key: "circuit_breaker_timeout", Value: &c.Breaker.Timeout,
		Default: "10m", Min: int64(time.Millisecond), Max: dayLong,
		Doc: `The time after which the agent polls again if no probe succeeds earlier.`,
	}}
}

func healthFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "http_server_port", Value: &c.HTTPServerPort, Default: "8080", Max: 65535,
		Doc: `The port on which the agent serves /healthz and /metrics; 0 disables the HTTP server. If
another process uses the port, the agent logs a warning and runs without it.`,
	}, {
		Key: "http_server_address", Value: &c.HTTPServerAddress,
		DefaultText: "127.0.0.1; in Kubernetes all addresses", Example: "127.0.0.1",
		Doc: `The address on which the HTTP server listens; "*" means all addresses. Clients need no
credentials.`,
	}, {
		Key: "health_threshold", Value: &c.HealthThreshold,
		DefaultText: "twice the longer of polling_interval and job_status_loop_interval", Example: "2m",
		Min: int64(100 * time.Millisecond), Max: 7 * dayLong,
		Doc: `The time without progress after which /healthz reports the agent as unhealthy.`,
	}, {
		Key: "syslog", Value: &c.Syslog, Default: "false",
		Doc: `If true, the agent logs to syslog instead of stderr.`,
	}, {
		Key: "log_format", Value: (*string)(&c.LogFormat),
		Default: string(LogText), Choices: []string{string(LogText), string(LogJSON)},
		Doc: `The format of the agent's own log.`,
	}, {
		Key: "log_job_output", Value: &c.Agent.LogJobOutput, Default: "true",
		Doc: `If true, the agent's own log includes the masked log of its jobs, up to 64 MiB of each.
The server always receives the whole log.`,
	}}
}

func hostFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "max_concurrent_jobs", Value: &c.Agent.MaxConcurrentJobs, Default: "1", Min: 1, Max: 1000,
		Doc: `The maximum number of concurrent jobs; 1 if single_run is true.`,
	}, {
		Key: "state_directory", Value: (*settings.Path)(&c.StateDirectory),
		DefaultText: "$STATE_DIRECTORY of the service manager; else /var/lib/workflow-agent for root and " +
			"$XDG_STATE_HOME/workflow-agent or ~/.local/state/workflow-agent for other users",
		Example: "/var/lib/workflow-agent",
		Doc: `The directory in which the agent stores its journal and undelivered logs. Several agents can
share it.`,
	}, {
		Key: "allowed_images", Value: &c.AllowedImages, Separator: ",", NotEmpty: true,
		DefaultText: "every image", Example: "[pulumi/*, registry.example.com/team/**]",
		Doc: `Patterns of the images that jobs may use; the agent refuses others. A name without a host
refers to Docker Hub. * matches within one path element, ** matches across elements. A
pattern without a tag matches every tag and digest; a pattern with a tag matches no digest. Names that
programs read differently, such as HOST/x with capital letters and no port, are always refused.`,
	}, {
		Key: "allowed_repositories", Value: &c.AllowedRepositories, Separator: ",", NotEmpty: true,
		DefaultText: "every repository", Example: "[github.com/acme/*]",
		Doc: `Patterns of the git repositories (host/path, without scheme, user and .git) that jobs may
use; the agent refuses others. * matches within one path element, ** matches
across elements. Quote a pattern that begins with *. If set, redirects to other addresses are refused. Pre-run
commands can still fetch from any host.`,
	}, {
		Key: "pulumi_mirror", Value: &c.Mirror.Location, DefaultText: "none: jobs run the pulumi of their image or host",
		Example: "https://mirror.example.com/pulumi",
		Doc: `The absolute path or the URL of a directory with the archives of pulumi's releases, from
which the agent brings the version that a job selects into state_directory; see deployments.md. (Docker
and process targets only.)`,
	}, {
		Key: "pulumi_checksums_file", Value: (*settings.Path)(&c.Mirror.Checksums),
		Example: "/etc/workflow-agent/pulumi-checksums.txt", Requirement: "required if pulumi_mirror is set",
		Doc: `The file with the SHA-256 sums of the archives that the agent may bring, in the format of
sha256sum. The agent reads it for each job.`,
	}, {
		Key: "ca_certificate_file", Value: (*settings.Path)(&c.CACertificateFile),
		Example: "/etc/ssl/certs/company-ca.pem",
		Doc: `A PEM file with certificate authorities that the agent and the programs in its jobs trust
in addition to the system's; see network.md.`,
	}}
}

func workspaceFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "workspaces", Value: &c.Agent.Workspaces, Default: "true",
		Doc: `If true, the agent keeps checkouts, dependencies and caches for later jobs of the stacks that
ask for it; see caches.md. If false, it keeps none, and removes those that it kept.`,
	}, {
		Key: "workspace_max_size", Value: (*settings.Bytes)(&c.WorkspaceMaxSize), Default: "20g", Min: 1 << 20,
		Doc: `The size of all workspaces that no job uses, from which the agent removes those above a quarter of it,
and then the least recently used ones. (Not in Kubernetes.)`,
	}, {
		Key: "workspace_max_age", Value: &c.WorkspaceMaxAge, Default: "336h", Min: int64(time.Minute), Max: 366 * dayLong,
		Doc: `The time without a job after which the agent removes a workspace. (Not in Kubernetes.)`,
	}}
}

func mirrorFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "go_mirror", Value: (*settings.URL)(&c.Mirrors.Go), Example: "https://go.mirror.example.com",
		Doc: `The Go module proxy from which jobs get all modules; see caches.md. A deployment's own variables
take precedence over the mirrors.`,
	}, {
		Key: "npm_mirror", Value: (*settings.URL)(&c.Mirrors.NPM), Example: "https://npm.mirror.example.com",
		Doc: `The npm registry of the tools npm, pnpm and yarn in jobs.`,
	}, {
		Key: "pypi_mirror", Value: (*settings.URL)(&c.Mirrors.PyPI), Example: "https://pypi.mirror.example.com/simple",
		Doc: `The package index of the tools pip and uv in jobs, and of poetry with its plugin for mirrors.`,
	}, {
		Key: "plugin_mirror", Value: (*settings.URL)(&c.Mirrors.Plugins), Example: "https://plugins.mirror.example.com",
		Check: checkPluginMirror,
		Doc:   `The address from which pulumi downloads all plugins in jobs.`,
	}}
}

func dockerFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "docker_network", Value: &c.Docker.Network,
		DefaultText: "the engine's default bridge; the host's network if the server is on loopback", Example: "deployments",
		Doc: `The network that job containers join.`,
	}, {
		Key: "docker_server_address", Value: &c.Docker.ServerAddress, DefaultText: "none",
		Example: "172.18.0.1:8800",
		Doc: `The IP address and port at which job containers reach a server whose service_url is on
loopback. They then need not share the host's network.`,
	}, {
		Key: "docker_memory", Value: (*settings.Bytes)(&c.Docker.Memory),
		DefaultText: "no limit", Example: "4g", Min: minDockerMemory,
		Doc: `The memory limit of a job container, such as 512m or 4g.`,
	}, {
		Key: "docker_cpus", Value: (*settings.CPUs)(&c.Docker.CPUs), DefaultText: "no limit", Example: "1.5",
		Doc: `The number of CPUs that a job container may use.`,
	}, {
		Key: "docker_pids_limit", Value: &c.Docker.PidsLimit, Default: "4096", Max: 4194304,
		Doc: `The limit of processes and threads in a job container; 0 removes the limit.`,
	}}
}

func updateFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "auto_update", Value: (*string)(&c.AutoUpdate), Default: string(UpdateAuto),
		Choices: []string{string(UpdateAuto), string(UpdateOn), string(UpdateOff)},
		Doc: `Whether the agent installs its own new signed releases. auto: if install.sh installed it
as a service; otherwise it logs the upgrade command once per release. true: like auto, with a warning in
the log if it cannot update itself. false: it does not check for releases.`,
	}, {
		Key: "update_channel", Value: &c.UpdateChannel, Default: "stable", Choices: []string{"stable", "beta"},
		Doc: `The channel from which the agent installs releases.`,
	}, {
		Key: "update_url", Value: (*settings.URL)(&c.UpdateURL),
		DefaultText: "where this build was released", Example: "https://releases.example.com/workflow-agent",
		Doc: `The location of the releases: a GitHub repository, or the URL of a mirror, such as
https://SERVER/releases of a workflow-server. The agent verifies the releases' signatures.`,
	}}
}

func kubernetesFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "kubernetes_namespace", Value: &c.Pods.Namespace,
		DefaultText: "the agent's own namespace; outside of a cluster that of the kubeconfig", Example: "workflow-jobs",
		Doc: `The namespace of worker pods. Use one that the agent does not run in: a user who can create pods
in a namespace can read its Secrets.`,
	}, {
		Key: "pod_template_file", Value: (*settings.Path)(&c.Pods.TemplateFile),
		DefaultText: DefaultPodTemplateFile + " if it exists", Example: "/etc/workflow-agent/pod.yaml",
		Doc: `A YAML or JSON file with a partial pod, which the agent merges over each worker pod; see
pod-template.md.`,
	}, {
		Key: "pod_start_timeout", Value: &c.PodStartTimeout, Default: "10m",
		Min: int64(10 * time.Second), Max: dayLong,
		Doc: `The time in which a worker pod must be scheduled and fetch its images, or the job fails.
Allow for new nodes and large images.`,
	}, {
		Key: "kubernetes_workspace_claim", Value: &c.Pods.WorkspaceClaim, DefaultText: "none", Example: "workflow-workspaces",
		Doc: `The persistent volume claim, in the namespace of worker pods, of the workspaces; see
caches.md. Each pod mounts only its own directory of it.`,
	}, {
		Key: "kubernetes_workspace_host_path", Value: (*settings.Path)(&c.Pods.WorkspaceHostPath), DefaultText: "none",
		Example: "/var/lib/workflow-workspaces",
		Doc: `The directory of each node for the workspaces, instead of kubernetes_workspace_claim.
Without either, jobs in pods have none.`,
	}, {
		Key: "debug_pod_ttl", Value: &c.DebugPodTTL, Default: "24h", Min: int64(time.Minute), Max: 30 * dayLong,
		Doc: `The time after which the agent removes a worker pod that PULUMI_AGENT_DEBUG_POD kept.`,
	}}
}

// podFields returns the fields of worker pods. Published installations set their variables.
func podFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "image", Value: &c.Pods.AgentImage, Requirement: "required if deploy_target is kubernetes",
		Doc: `Kubernetes only: the image of the agent's own release, from which an init container copies
the runner into worker pods.`,
	}, {
		Key: "image_pull_policy", Value: &c.Pods.PullPolicy,
		Default: "IfNotPresent", Choices: []string{"Always", "IfNotPresent", "Never"},
		Doc: `Kubernetes only: the pull policy of worker pods.`,
	}, {
		Key: "service_account_name", Value: &c.Pods.ServiceAccount, DefaultText: "the namespace's default, without its token",
		Doc: `Kubernetes only: the service account of worker pods, such as one with a cloud identity. Do not
use the agent's own.`,
	}, {
		Key: "num_cpus", Value: &c.Pods.CPUs, DefaultText: "no request",
		Doc: `Kubernetes only: the CPU request of worker pods, such as 2 or 500m.`,
	}, {
		Key: "mem_quantity", Value: &c.Pods.Memory, DefaultText: "no request",
		Doc: `Kubernetes only: the memory request of worker pods, as a number of Gi, or with a unit, such as
512Mi.`,
	}, {
		Key: "debug_pod", Value: &c.Pods.DebugPod, Default: "false",
		Doc: `Kubernetes only: if true, worker pods remain after their job, for debug_pod_ttl.`,
	}, {
		Key: "pod_template", Value: (*settings.Text)(&c.Pods.Template), DefaultText: "the content of pod_template_file",
		Doc: `Kubernetes only: a partial pod, as YAML or JSON, instead of pod_template_file.`,
	}}
}

func environmentFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "override_image_reference", Env: "PULUMI_DEPLOY_OVERRIDE_IMAGE_REFERENCE", Value: &c.Agent.OverrideImageReference,
		DefaultText: "the image that each job requests",
		Doc:         `The image that the agent uses for every job.`,
	}, {
		Key: "docker_host", Env: "DOCKER_HOST", Value: &c.Docker.Host,
		DefaultText: "the engine of the current docker context, then the usual sockets",
		Doc: `The Docker Engine, such as unix:///run/docker.sock or tcp://host:2376. TLS requires
DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH. ssh:// is not supported. Jobs receive the variable.`,
	}}
}

// DefaultPodTemplateFile is the path at which published installations mount the pod template. The file
// may be missing or empty, and can be a directory.
const DefaultPodTemplateFile = "/mnt/worker-pod.json"

const obsoleteRunners = "is a key of older agents and no longer has an effect: " +
	"remove it, and set working_directory if the runner binaries are not next to the agent's"

func refuse(key string) string {
	if key == "ecs" || strings.HasPrefix(key, "ecs.") || strings.HasPrefix(key, "ecs_") {
		return "belongs to the ECS target, which this agent does not support: remove it and set deploy_target to docker, kubernetes or process"
	}
	return ""
}

func checkTarget(target string) error {
	if target == "ecs" {
		return errors.New("is ecs, the ECS target, which this agent does not support: set it to docker, kubernetes or process")
	}
	return nil
}
