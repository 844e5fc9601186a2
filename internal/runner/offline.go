package runner

import (
	"context"
	"errors"

	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// Offline is the [Server] of a job that a user runs for a trial: it accepts log, statuses and
// result and keeps none of them.
type Offline struct{}

// Definition fails: an offline launch includes it.
func (Offline) Definition(context.Context) (*workflow.JobDefinition, error) {
	return nil, errors.New("a job without a server must bring its definition")
}

// Heartbeat never requests an end; signals do.
func (Offline) Heartbeat(context.Context, protocol.Phase) (protocol.HeartbeatResponse, error) {
	return protocol.HeartbeatResponse{}, nil
}

// StepStatus does nothing.
func (Offline) StepStatus(context.Context, int, protocol.StepStatusRequest) error { return nil }

// PutLog takes everything.
func (Offline) PutLog(_ context.Context, _ int, offset int64, framed []byte, _ bool) (protocol.LogAck, error) {
	end := offset + int64(len(framed))
	return protocol.LogAck{Received: end, Durable: end}, nil
}

// PostLogLines takes everything.
func (Offline) PostLogLines(context.Context, int, protocol.LogLines) error { return nil }

// Result takes every result.
func (Offline) Result(context.Context, protocol.ResultRequest) error { return nil }

// Gone returns false: an offline job has no other owner.
func (Offline) Gone() bool { return false }

var _ Server = Offline{}
