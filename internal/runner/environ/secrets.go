package environ

import (
	"workflowagent/internal/protocol"
	"workflowagent/internal/redact"
	"workflowagent/internal/runner/source"
	"workflowagent/internal/workflow"
)

// Secrets returns everything in a launch that must not show in a log.
func Secrets(l *protocol.Launch) []redact.Secret {
	secrets := []redact.Secret{
		{Name: "the job token", Value: l.JobToken},
		{Name: "the OIDC token", Value: l.OIDCToken},
	}
	for name, value := range l.ForwardedEnv {
		secrets = append(secrets, redact.Secret{Name: name, Value: value})
	}
	secrets = append(secrets, proxySecrets(l.Proxy)...)
	if l.Definition != nil {
		secrets = append(secrets, DefinitionSecrets(l.Definition)...)
	}
	return secrets
}

// DefinitionSecrets returns the secrets of a definition with the names by which a
// warning may mention them. The access token of the job is one of them, whether
// the server says so or not.
func DefinitionSecrets(d *workflow.JobDefinition) []redact.Secret {
	names := map[string]string{}
	for _, name := range d.SecretEnv {
		names[d.Env[name]] = name
	}
	var secrets []redact.Secret
	add := func(name string, values ...string) {
		for _, value := range values {
			if known := names[value]; known != "" {
				name = known
			}
			secrets = append(secrets, redact.Secret{Name: name, Value: value})
		}
	}
	add("a secret of the deployment", d.Secrets()...)
	add(envAccessToken, d.Env[envAccessToken])
	secrets = append(secrets, proxySecrets(d.Env)...)
	if d.Deployment != nil && d.Deployment.Source != nil && d.Deployment.Source.Git != nil {
		add("the password in the repository URL", source.URLSecrets(d.Deployment.Source.Git.RepoURL)...)
	}
	return secrets
}
