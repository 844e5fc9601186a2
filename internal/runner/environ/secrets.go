package environ

import (
	"workflowagent/internal/protocol"
	"workflowagent/internal/redact"
	"workflowagent/internal/runner/source"
	"workflowagent/internal/workflow"
)

// Secrets returns all values in a launch that must not appear in a log.
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

// DefinitionSecrets returns the secrets in a definition, with names for warnings.
func DefinitionSecrets(d *workflow.JobDefinition) []redact.Secret {
	secrets := append(proxySecrets(d.Env), redact.OfJob(d)...)
	if d.Deployment != nil && d.Deployment.Source != nil && d.Deployment.Source.Git != nil {
		for _, password := range source.URLSecrets(d.Deployment.Source.Git.RepoURL) {
			secrets = append(secrets, redact.Secret{Name: "the password in the repository URL", Value: password})
		}
	}
	return secrets
}
