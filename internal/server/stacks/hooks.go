package stacks

import (
	"context"

	"workflowagent/internal/redact"
	"workflowagent/internal/server/store"
)

// Hooks let the deployments domain follow updates without stacks knowing it.
// Nil members are skipped.
type Hooks struct {
	// LinkUpdate is asked, inside the transaction that creates an update, for
	// the deployment that runs it. buildID is the client's word for it (the
	// environment's ci.build.id) and is empty when there is none; for callers
	// with a job token the service knows the deployment and does not ask.
	LinkUpdate func(tx *store.Tx, stack store.Stack, buildID string) (deploymentID string, err error)
	// MayWrite is asked, inside the transaction, before a deployment creates or
	// starts an update, stores a state, changes tags or removes its stack.
	MayWrite func(tx *store.Tx, deploymentID string) error
	// UpdateFinished is called after an update has ended and is on disk. It
	// must not block.
	UpdateFinished func(u store.Update)
	// KnownSecrets returns the secrets that a deployment was given. They are
	// masked in the events of its updates.
	KnownSecrets func(ctx context.Context, deploymentID string) ([]redact.Secret, error)
}

// mayWrite asks the hook about a deployment; "" is none.
func (s *Service) mayWrite(tx *store.Tx, deploymentID string) error {
	if deploymentID == "" || s.hooks.MayWrite == nil {
		return nil
	}
	return s.hooks.MayWrite(tx, deploymentID)
}

// knownSecrets returns the secrets to mask in the events of an update, nil if none
// are known.
func (s *Service) knownSecrets(ctx context.Context, u store.Update) (*redact.Set, error) {
	if u.DeploymentID == "" || s.hooks.KnownSecrets == nil {
		return nil, nil //nolint:nilnil // nothing to mask is an answer
	}
	return s.masks.Of(ctx, u.DeploymentID, s.hooks.KnownSecrets)
}
