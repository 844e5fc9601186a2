package config

// hostFields are the keys about the agent's place on its host and what it lets jobs be.
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
		doc: `A PEM file with certificate authorities that are trusted besides the system's, by the
agent and by its jobs.`,
		ptr: func(c *Config) any { return &c.CACertificateFile },
	}}
}

// dockerFields are the keys of the Docker target.
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

// updateFields are the keys about new releases of the agent.
func updateFields() []field {
	return []field{{
		name: "auto_update", env: envPrefix + "AUTO_UPDATE", kind: kindString, group: groupUpdate,
		def:     string(UpdateAuto),
		choices: []string{string(UpdateAuto), string(UpdateOn), string(UpdateOff)},
		doc: `Whether the agent installs new signed releases of itself. auto does so unless a package
manager owns the installed files; then it only says how to update. Updates are not in this build: the
keys of this group are checked and have no effect yet.`,
		ptr: func(c *Config) any { return (*string)(&c.AutoUpdate) },
	}, {
		name: "update_channel", env: envPrefix + "UPDATE_CHANNEL", kind: kindString, group: groupUpdate,
		def: "stable", choices: []string{"stable", "beta"},
		doc: `Which releases to take.`,
		ptr: func(c *Config) any { return &c.UpdateChannel },
	}, {
		name: "update_url", env: envPrefix + "UPDATE_URL", kind: kindURL, group: groupUpdate,
		defText: "none: no updates are looked for", example: "https://releases.example.com/workflow-agent",
		doc: `Where releases are looked for.`,
		ptr: func(c *Config) any { return &c.UpdateURL },
	}}
}

// environmentFields are the settings that exist as variables only.
func environmentFields() []field {
	return []field{{
		name: "image", env: envPrefix + "IMAGE", kind: kindString, group: groupEnvOnly, envOnly: true,
		defText: "the image of the agent's own release",
		doc:     `The image that helper containers of worker pods are made from. (Kubernetes target only.)`,
		ptr:     func(c *Config) any { return &c.AgentImage },
	}, {
		name: "image_pull_policy", env: envPrefix + "IMAGE_PULL_POLICY", kind: kindString, group: groupEnvOnly, envOnly: true,
		def: "IfNotPresent", choices: []string{"Always", "IfNotPresent", "Never"},
		doc: `The pull policy of worker pods. (Kubernetes target only.)`,
		ptr: func(c *Config) any { return &c.ImagePullPolicy },
	}, {
		name: "service_account_name", env: envPrefix + "SERVICE_ACCOUNT_NAME", kind: kindString, group: groupEnvOnly, envOnly: true,
		defText: "the namespace's default",
		doc:     `The service account of worker pods. (Kubernetes target only.)`,
		ptr:     func(c *Config) any { return &c.ServiceAccountName },
	}, {
		name: "num_cpus", env: envPrefix + "NUM_CPUS", kind: kindString, group: groupEnvOnly, envOnly: true,
		defText: "no request",
		doc:     `The CPU request of worker pods. (Kubernetes target only.)`,
		ptr:     func(c *Config) any { return &c.NumCPUs },
	}, {
		name: "mem_quantity", env: envPrefix + "MEM_QUANTITY", kind: kindString, group: groupEnvOnly, envOnly: true,
		defText: "no request",
		doc:     `The memory request of worker pods, in Gi. (Kubernetes target only.)`,
		ptr:     func(c *Config) any { return &c.MemQuantity },
	}, {
		name: "debug_pod", env: envPrefix + "DEBUG_POD", kind: kindBool, group: groupEnvOnly, envOnly: true,
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
		doc:     `The Docker engine to use. It is also given to jobs.`,
		ptr:     func(c *Config) any { return &c.DockerHost },
	}}
}
