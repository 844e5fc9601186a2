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
	for _, name := range def.SecretEnv {
		out = append(out, redact.Secret{Name: name, Value: def.Env[name]})
	}
	if def.Image != nil && def.Image.Credentials != nil {
		out = append(out, redact.Secret{Name: "image password", Value: def.Image.Credentials.Password})
	}
	if src := def.Deployment.Source; src != nil && src.Git != nil && src.Git.Auth != nil {
		a := src.Git.Auth
		out = append(out,
			redact.Secret{Name: "git token", Value: a.AccessToken},
			redact.Secret{Name: "ssh key", Value: a.SSHPrivateKey},
			redact.Secret{Name: "ssh passphrase", Value: a.SSHPassphrase},
			redact.Secret{Name: "git password", Value: a.Password})
	}
	return out, nil
}
