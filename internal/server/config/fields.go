package config

import (
	"math"
	"strconv"
	"time"

	"workflowagent/internal/server/api/clientaddr"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity/issuer"
	"workflowagent/internal/server/runners"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/settings"
)

// DefaultDataDir is the default of the setting data_dir, below the current directory.
const DefaultDataDir = "workflow-server-data"

const (
	envPrefix = "WORKFLOW_SERVER_"
	shortest  = int64(time.Millisecond)
)

// Table returns the table of the server's settings, bound to an empty configuration.
func Table() *settings.Table { return table(&Config{}) }

func table(c *Config) *settings.Table {
	return settings.NewTable(
		envPrefix,
		settings.Group{Title: "Addresses", Fields: addressFields(c)},
		settings.Group{Title: "TLS certificates by ACME", Fields: acmeFields(c)},
		settings.Group{Title: "Data and keys", Fields: dataFields(c)},
		settings.Group{Title: "Sign-in", Fields: signInFields(c)},
		settings.Group{Title: "Health and observability", Fields: healthFields(c)},
		settings.Group{Title: "Updates and deployments", Fields: deploymentFields(c)},
		settings.Group{Title: "Identity tokens of jobs", Fields: issuerFields(c)},
		settings.Group{Title: "Storage", Fields: storageFields(c)},
		settings.Group{Title: "Backups", Fields: backupFields(c)},
		settings.Group{Title: "Built-in runners", Fields: runnerFields(c)},
	)
}

func addressFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "listen", Value: &c.Listen, Default: "127.0.0.1:8800", Check: checkListen,
		Doc: `The address to listen on, as host:port, or unix:PATH for a unix socket.`,
	}, {
		Key: "tls_cert_file", Value: (*settings.Path)(&c.TLSCert), DefaultText: "no TLS", Example: "/etc/workflow-server/cert.pem",
		Doc: `The file with the TLS certificate and its chain in PEM. The server reads it again when it changes; see tls.md.`,
	}, {
		Key: "tls_key_file", Value: (*settings.Path)(&c.TLSKey), DefaultText: "no TLS", Example: "/etc/workflow-server/key.pem",
		Doc: `The file with the private key of tls_cert_file in PEM.`,
	}, {
		Key: "redirect_listen", Value: &c.RedirectListen, Check: checkListen, DefaultText: "none", Example: "0.0.0.0:80",
		Doc: `The address, as host:port, on which browsers that use http are redirected to the external URL.`,
	}, {
		Key: "client_address", Value: &c.ClientAddress, Default: clientaddr.Connection, Choices: clientaddr.Sources(),
		Doc: `Where a client's address comes from: the connection, or what the trusted proxies send.`,
	}, {
		Key: "trusted_proxies", Value: &c.TrustedProxies, DefaultText: "none", Example: "127.0.0.1, 10.0.0.5",
		Doc: `The proxies that may state a client's address: addresses and networks, separated by commas,
and unix for the unix socket. No client may have such an address; see tls.md.`,
	}, {
		Key: "external_url", Value: (*settings.URL)(&c.ExternalURL), Check: checkExternalURL,
		DefaultText: "the address listened on", Example: "https://deployments.example.com",
		Doc: `The URL under which clients, agents and jobs reach the server. Stacks store it, so set it
before you create the first stack.`,
	}, {
		Key: "console_url", Value: (*settings.URL)(&c.ConsoleURL), Check: checkExternalURL,
		DefaultText: "external_url, with the host app.X if that is api.X", Example: "https://deployments.example.com",
		Doc: `The URL of the console for browsers.`,
	}, {
		Key: "outbound_networks", Value: &c.Networks, Example: "10.0.0.0/8, 192.168.1.20/32", DefaultText: "none",
		Doc: `The internal networks in which webhooks, integrations and OIDC issuers may be, in CIDR
notation, separated by commas. Organizations can make the server call these networks; see
server-configure.md.`,
	}, {
		Key: "webhook_networks", Value: &c.WebhookNetworks, Example: "10.0.0.0/8, 192.168.1.20/32", DefaultText: "none",
		Doc: `The former name of outbound_networks, with the same effect. If both are set, both lists apply.`,
	}, {
		Key: "releases", Value: (*settings.Path)(&c.Releases), Check: checkReleases, DefaultText: "none", Example: "/srv/releases",
		Doc: `The directory with a mirror of the agent's releases, which the server serves to all clients at
/releases/.`,
	}, {
		Key: "shutdown_timeout", Value: &c.ShutdownTimeout, Default: "30s", Min: shortest,
		Doc: `The time that requests may take to finish when the server stops.`,
	}}
}

func acmeFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "acme_agree_to_terms", Value: &c.ACMETerms, Default: "false",
		Doc: `If true, the server obtains its TLS certificate from the authority at acme_directory by ACME, and you
agree to the terms of service of this authority; see tls.md.`,
	}, {
		Key: "acme_directory", Value: (*settings.URL)(&c.ACMEDirectory), Default: LetsEncrypt, Check: checkDirectory,
		Doc: `The URL of the authority's ACME directory. The default is that of Let's Encrypt.`,
	}, {
		Key: "acme_email", Value: &c.ACMEEmail, Check: checkEmail, DefaultText: "none", Example: "operator@example.com",
		Doc: `The address at which the authority may contact you.`,
	}, {
		Key: "acme_names", Value: &c.ACMENames, Separator: ",", DefaultText: "the hosts of external_url and console_url", Example: "deployments.example.com",
		Doc: `The host names for which the server obtains certificates.`,
	}, {
		Key: "acme_ca_file", Value: (*settings.Path)(&c.ACMECAFile), DefaultText: "the system's authorities", Example: "/etc/workflow-server/acme-ca.pem",
		Doc: `The file with certificates in PEM that the server trusts, in addition to the system's, when it
connects to acme_directory.`,
	}, {
		Key: "acme_eab_key_id", Value: &c.ACMEKeyID, DefaultText: "none", Example: "kid-1",
		Doc: `The key id of your account at an authority that requires external account binding.`,
	}, {
		Key: "acme_eab_key", Value: &c.ACMEKey, Credential: "acme_eab_key", DefaultText: "none", Example: "xxx",
		Doc: `The key that belongs to acme_eab_key_id, in base64url.`,
	}, {
		Key: "acme_eab_key_file", Value: (*settings.Path)(&c.ACMEKeyFile), DefaultText: "none", Example: "/etc/workflow-server/acme-eab-key",
		Doc: `The file that contains only the key that belongs to acme_eab_key_id.`,
	}}
}

func dataFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "data_dir", Value: (*settings.Path)(&c.DataDir), Default: DefaultDataDir,
		Doc: `The directory for keys, the first access token and the default database. In a service of systemd
with StateDirectory, the default is that directory. A relative path is resolved against the current
directory.`,
	}, {
		Key: "database", Value: &c.Database, DefaultText: "SQLite in the data directory", Example: "postgres://USER@HOST/NAME",
		Doc: `The database, as sqlite:PATH or postgres://USER@HOST/NAME. The URL can contain a password, but
not on the command line.`,
	}, {
		Key: "database_password", Value: &c.DatabasePassword, Credential: "database_password", Example: "xxx", DefaultText: "none",
		Doc: `The password of the user in database.`,
	}, {
		Key: "database_password_file", Value: (*settings.Path)(&c.DatabasePasswordFile), DefaultText: "none", Example: "/etc/workflow-server/database-password",
		Doc: `The file that contains only the password of the user in database.`,
	}, {
		Key: "database_connections", Value: &c.DatabaseConns, Default: strconv.Itoa(store.DefaultConns), Min: store.MinConns, Max: 1000,
		Doc: `The number of connections that this server opens to PostgreSQL at most; see postgresql.md.`,
	}, {
		Key: "master_key_file", Value: (*settings.Path)(&c.MasterKeyFile), Credential: "master_key",
		DefaultText: "master-key in the data directory, created if missing", Example: "/etc/workflow-server/master-key",
		Doc: `The file with the master key, which encrypts all secrets: 32 bytes in base64. Servers that share
a database need the same key.`,
	}, {
		Key: "master_key_command", Value: &c.MasterKeyCommand, DefaultText: "none", Example: "vault kv get -field=key secret/workflow-server",
		Doc: `A shell command that prints the master key, instead of a file. The server runs it when it starts, for at
most a minute.`,
	}, {
		Key: "organization", Value: &c.Organization, Default: "organization",
		Doc: `The name of the organization that the first start creates.`,
	}}
}

func signInFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "token_sign_in", Value: &c.TokenSignIn, Default: "true",
		Doc: `If true, users can sign in to the console with a personal access token.`,
	}, {
		Key: "sign_in_file", Value: (*settings.Path)(&c.SignInFile), DefaultText: "none", Example: "/etc/workflow-server/sign-in.yaml",
		Doc: `The file that lists the identity providers at which users sign in to the console by OpenID
Connect; see sign-in.md.`,
	}}
}

func healthFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "metrics_token", Value: &c.MetricsToken, Credential: "metrics_token", Reload: true, Example: "xxx",
		DefaultText: "none: the server refuses /metrics to all callers",
		Doc:         `The bearer token that /metrics requires.`,
	}, {
		Key: "metrics_token_file", Value: (*settings.Path)(&c.MetricsTokenFile), Reload: true, DefaultText: "none", Example: "/etc/workflow-server/metrics-token",
		Doc: `The file that contains only the bearer token that /metrics requires.`,
	}, {
		Key: "log_level", Value: &c.LogLevel, Default: "info", Choices: []string{"error", "warning", "info", "debug"}, Reload: true,
		Doc: `The lowest level of the lines in the server's log.`,
	}, {
		Key: "log_format", Value: &c.LogFormat, Default: "text", Choices: []string{"text", "json"}, Reload: true,
		Doc: `The format of the server's log.`,
	}}
}

func deploymentFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "update_lease", Value: &c.UpdateLease, Default: "5m",
		Min: shortest, Max: int64(stacks.MaxLease), // clients rely on leases of at most 5m
		Doc: `The time that an update may go without renewing its lease. The pulumi CLI renews it about every
3m, so less than 4m ends longer updates.`,
	}, {
		Key: "default_image", Value: &c.DefaultImage, Default: deployments.DefaultImage,
		Doc: `The container image of deployments whose settings name none.`,
	}, {
		Key: "max_deployments", Value: &c.MaxDeployments, Default: strconv.Itoa(deployments.DefaultCap), Min: 1, Max: math.MaxInt32,
		Doc: `The number of deployments of an organization that may be claimed or running at once.`,
	}, {
		Key: "job_lease", Value: &c.JobLease, Default: "1m", Min: shortest,
		Doc: `The time without a heartbeat after which a deployment that was claimed but not started returns
to the queue.`,
	}, {
		Key: "job_lost", Value: &c.JobLost, Default: "10m", Min: shortest,
		Doc: `The time without a heartbeat after which a running deployment fails as lost.`,
	}, {
		Key: "forge_poll", Value: &c.ForgePoll, Default: "1m", Min: shortest,
		Doc: `The time between two polls of the repositories whose webhooks do not reach this server. The
server polls the others at least every 15m.`,
	}}
}

func issuerFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "oidc_issuer_url", Value: (*settings.URL)(&c.IssuerURL), DefaultText: "/oidc below external_url", Example: "https://oidc.example.com",
		Doc: `The URL that identifies the server in the identity tokens of jobs, where its keys are published;
see cloud-credentials.md.`,
	}, {
		Key: "oidc_key_rotation", Value: &c.KeyRotation, Default: "2160h", Min: int64(issuer.MinRotation),
		Doc: `The time for which a key signs the identity tokens of jobs. The default is 90 days.`,
	}, {
		Key: "oidc_audiences", Value: &c.Audiences, Separator: ",", Example: "sts.amazonaws.com", DefaultText: "none",
		Doc: `The audiences of identity tokens that every job may request, in addition to the name of its
organization.`,
	}, {
		Key: "oidc_aws_session_tags", Value: &c.SessionTags, Default: "false",
		Doc: `If true, identity tokens contain trigger and fork as session tags for AWS. Every role must then
permit sts:TagSession.`,
	}}
}

func storageFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "keep_states", Value: &c.KeepStates, Default: "50", Min: 1, Max: math.MaxInt32,
		Doc: `The number of each stack's newest states that the server keeps, whatever their age.`,
	}, {
		Key: "keep_states_for", Value: &c.KeepStatesFor, Default: "2160h",
		Doc: `The age at which the server removes other states. The default is 90 days; 0s means never.`,
	}, {
		Key: "keep_logs_for", Value: &c.KeepLogsFor, Default: "4320h",
		Doc: `The age at which the server removes the logs of deployments and the events of updates. The
default is 180 days; 0s means never.`,
	}, {
		Key: "keep_deleted_stacks", Value: &c.KeepDeletedStacks, Default: "720h",
		Doc: `The time for which deleted stacks can be restored. The default is 30 days; 0s means not at all.`,
	}, {
		Key: "organization_quota", Value: (*settings.Bytes)(&c.Quota), DefaultText: "no limit", Example: "50g",
		Doc: `The size of what each organization may store; see server-storage.md.`,
	}, {
		Key: "policy_pack_size", Value: (*settings.Bytes)(&c.PolicyPackSize), Default: "256m",
		Doc: `The size that the archive of a policy pack may have, as the client sends it.`,
	}}
}

func backupFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "backup_schedule", Value: &c.BackupSchedule, Check: checkSchedule, DefaultText: "none", Example: "0 3 * * *",
		Doc: `When the server backs up the installation, as a cron expression with five fields in UTC; see backup.md.`,
	}, {
		Key: "backup_directory", Value: (*settings.Path)(&c.BackupDirectory), DefaultText: "backups in the data directory", Example: "/mnt/backups",
		Doc: `The directory for the backups that the server writes by itself. Only the server's user may have access.`,
	}, {
		Key: "backup_keep", Value: &c.BackupKeep, Default: "14", Min: 1, Max: 10_000,
		Doc: `The number of backups in backup_directory after which the server removes the oldest ones.`,
	}, {
		Key: "backup_passphrase", Value: &c.BackupPassphrase, Credential: "backup_passphrase", Example: "xxxxxxxxxxxx",
		DefaultText: "none: the backups do not contain the master key",
		Doc:         `The passphrase that seals the master key in these backups, of at least 12 characters.`,
	}, {
		Key: "backup_passphrase_file", Value: (*settings.Path)(&c.BackupPassphraseFile), DefaultText: "none", Example: "/etc/workflow-server/backup-passphrase",
		Doc: `The file that contains only the passphrase that seals the master key in these backups.`,
	}, {
		Key: "backup_before_upgrade", Value: &c.BackupBeforeUpgrade, Default: "true",
		Doc: `If true, the server writes a backup to backup_directory before it updates the schema of an earlier version,
and does not start without; see server-upgrade.md.`,
	}}
}

func runnerFields(c *Config) []settings.Field {
	return []settings.Field{{
		Key: "runners", Value: &c.Runners, Min: 1, Max: 1000, DefaultText: "none", Example: "2",
		Doc: `The number of deployments that run at once on this machine, with an agent that the server
starts; see runners.md.`,
	}, {
		Key: "runners_org", Value: &c.RunnersOrg, DefaultText: "the only one", Example: "organization",
		Doc: `The organization whose deployments the built-in runners run.`,
	}, {
		Key: "runners_user", Value: &c.RunnersUser, Default: runners.DefaultUser,
		Doc: `The system user of the built-in runners, who may use the Docker Engine.`,
	}, {
		Key: "runners_target", Value: &c.RunnersTarget, Default: runners.Docker, Choices: []string{runners.Docker, runners.Process},
		Doc: `Where the built-in runners run deployments. docker: in containers. process: as processes of their
user, without isolation.`,
	}, {
		Key: "runners_dir", Value: (*settings.Path)(&c.RunnersDir), Default: "/var/lib/workflow-runners",
		Doc: `The directory for the state of the built-in runners. Their user must be able to enter it.`,
	}, {
		Key: "i_trust_every_repository", Value: &c.TrustAll, Default: "false",
		Requirement: "required if runners_target is process",
		Doc:         `If true, everyone who can change a deployed repository may run code as the runners' user.`,
	}}
}
