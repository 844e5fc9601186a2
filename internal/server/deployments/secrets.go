package deployments

import (
	"context"
	"fmt"

	"workflowagent/internal/redact"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// KnownSecrets returns the secrets that a deployment was given, so that what
// its programs print can be masked.
func (s *Service) KnownSecrets(ctx context.Context, deploymentID string) ([]redact.Secret, error) {
	var d store.Deployment
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		d, err = tx.Deployment(deploymentID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking up a deployment: %w", err)
	}
	set, err := workflow.ParseSettings([]byte(d.Configuration))
	if err != nil {
		return nil, fmt.Errorf("reading the settings of a deployment: %w", err)
	}
	def, err := s.define(ctx, d, "", set, "", "")
	if err != nil {
		return nil, err
	}
	var out []redact.Secret
	for _, secret := range def.Secrets() {
		out = append(out, redact.Secret{Name: secret.Name, Value: secret.Value()})
	}
	return out, nil
}
