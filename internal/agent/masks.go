package agent

import (
	"context"
	"errors"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/protocol"
	"workflowagent/internal/redact"
	"workflowagent/internal/workflow"
)

// largeSecrets is the size of a job's secrets, in bytes, above which the set that masks them can need
// much memory. The agent keeps only one such set at a time, and only until the job has started; the
// runner masks the job's output.
const largeSecrets = 16 << 10

// hostSecrets returns the secrets of the claim and of the agent's host.
func (j *job) hostSecrets() []redact.Secret {
	claim := j.entry.Claim
	secrets := []redact.Secret{
		{Name: "job token", Value: claim.JobToken},
		{Name: "OIDC token", Value: claim.OIDCToken},
	}
	for _, value := range j.agent.opts.Tokens.Values() {
		secrets = append(secrets, redact.Secret{Name: "pool token", Value: value})
	}
	for name, values := range protocol.ProxySecrets(j.agent.opts.ProxyEnv) {
		for _, value := range values {
			secrets = append(secrets, redact.Secret{Name: name, Value: value})
		}
	}
	for name, value := range j.agent.opts.ForwardedEnv {
		secrets = append(secrets, redact.Secret{Name: name, Value: value})
	}
	return secrets
}

// maskHost masks the secrets of the claim and of the agent's host.
func (j *job) maskHost() {
	// The context does not matter: these secrets are few.
	j.masks, j.maskErr = redact.Build(context.Background(), j.hostSecrets()...)
}

// maskDefinition masks the secrets of the job's definition as well. It returns an error if they are
// more than can be masked. It waits while another job has a large set.
func (j *job) maskDefinition(ctx context.Context, definition *workflow.JobDefinition) error {
	if j.maskErr != nil {
		return maskError(j.maskErr)
	}
	secrets := append(j.hostSecrets(), redact.OfJob(definition)...)
	if !j.largeMasks && redact.Bytes(secrets) > largeSecrets {
		select {
		case j.agent.largeMasks <- struct{}{}:
			j.largeMasks = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	masks, err := redact.Build(ctx, secrets...)
	if err != nil {
		return maskError(err)
	}
	j.masks = masks
	return nil
}

// dropLargeMasks releases a large set. The secrets of the definition are then no longer masked, as
// after a restart of the agent.
func (j *job) dropLargeMasks() {
	if j.largeMasks {
		j.maskHost()
		j.largeMasks = false
		<-j.agent.largeMasks
	}
}

// maskError returns the error for a job whose secrets the agent cannot mask.
func maskError(err error) error {
	if _, limit := errors.AsType[*redact.LimitError](err); limit {
		return &executor.Error{Reason: workflow.ReasonInvalidJob, Message: "The agent cannot mask this job's secrets: " + err.Error() + ".", Err: err}
	}
	return err
}
