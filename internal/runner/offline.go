package runner

import (
	"context"
	"errors"

	"workflowagent/internal/protocol"
	"workflowagent/internal/runner/credentials"
	"workflowagent/internal/workflow"
)

// Offline is the [Server] of a trial job, which runs without a server. It accepts the log, the
// statuses and the result, and stores none of them.
type Offline struct{}

// Definition returns an error, because an offline launch includes the definition.
func (Offline) Definition(context.Context) (*workflow.JobDefinition, error) {
	return nil, errors.New("a launch without a server must include the definition")
}

// Heartbeat never requests a cancellation. Users send signals instead.
func (Offline) Heartbeat(context.Context, protocol.Phase) (protocol.HeartbeatResponse, error) {
	return protocol.HeartbeatResponse{}, nil
}

// OpenedSecrets returns nothing, because a server opens environments.
func (Offline) OpenedSecrets(context.Context, int64) (protocol.OpenedSecrets, error) {
	return protocol.OpenedSecrets{}, nil
}

// OpenEnvironments returns a problem, because only a server opens environments.
func (Offline) OpenEnvironments(context.Context) (protocol.JobEnvironments, error) {
	return protocol.JobEnvironments{Problem: "this job runs without a server, and only a server opens environments"}, nil
}

// IdentityToken returns an error, because only a server issues identity tokens.
func (Offline) IdentityToken(context.Context, string) (protocol.IdentityToken, error) {
	return protocol.IdentityToken{}, credentials.ErrNoIssuer
}

// StepStatus does nothing.
func (Offline) StepStatus(context.Context, int, protocol.StepStatusRequest) error { return nil }

// PutLog accepts all output and discards it.
func (Offline) PutLog(_ context.Context, _ int, offset int64, framed []byte, _ bool) (protocol.LogAck, error) {
	end := offset + int64(len(framed))
	return protocol.LogAck{Received: end, Durable: end}, nil
}

// PostLogLines accepts all lines and discards them.
func (Offline) PostLogLines(context.Context, int, protocol.LogLines) error { return nil }

// Result accepts every result and discards it.
func (Offline) Result(context.Context, protocol.ResultRequest) error { return nil }

// Gone returns false, because an offline job has no other owner.
func (Offline) Gone() bool { return false }

var _ Server = Offline{}
