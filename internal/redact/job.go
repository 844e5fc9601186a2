package redact

import "workflowagent/internal/workflow"

// OfJob returns the secrets in a job's definition.
func OfJob(d *workflow.JobDefinition) (secrets []Secret) {
	for _, secret := range d.Secrets() {
		secrets = append(secrets, Secret{Name: secret.Name, Value: secret.Value()})
	}
	return secrets
}
