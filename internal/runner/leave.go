package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
)

// The requests for permission to start are repeated for leaveTime, like the agent's.
const (
	leaveTime       = 10 * time.Minute
	leaveCallTime   = 20 * time.Second
	firstLeavePause = time.Second
	maxLeavePause   = 10 * time.Second
)

// leaver is the part of [Server] that permits a job to start.
type leaver interface {
	Heartbeat(ctx context.Context, phase protocol.Phase) (protocol.HeartbeatResponse, error)
}

// askLeave requests permission to start the job. An error means that nothing may be started.
// cancelled means that the job has permission but was cancelled meanwhile, so the runner must report
// its end. stock means that the server has only the stock calls.
func askLeave(ctx context.Context, server leaver, stock bool, signals <-chan os.Signal, log *logrus.Entry) (cancelled bool, err error) {
	limited, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	var signal os.Signal
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case signal = <-signals:
			cancel()
		case <-limited.Done():
		}
	}()
	var answer protocol.HeartbeatResponse
	policy := retry.Policy{First: firstLeavePause, Max: maxLeavePause}
	warned := false
	err = policy.Do(limited, func(err error) bool {
		if protocol.Refused(err) || stock && protocol.UnknownCall(err) {
			return false
		}
		if !warned {
			warned = true
			log.WithError(err).Warn("the server does not answer the request to start the job; retrying")
		}
		return true
	}, func() (err error) {
		call, done := context.WithTimeout(limited, leaveCallTime)
		defer done()
		answer, err = server.Heartbeat(call, protocol.PhaseStarting)
		return err
	})
	cancel()
	<-watched
	switch {
	case err == nil && answer.CancelRequested && !answer.Started:
		return false, errors.New("the deployment was cancelled; nothing was started")
	case err == nil, stock && protocol.UnknownCall(err): // from such a server, the definition is the permission
		return answer.CancelRequested, nil
	case protocol.Refused(err):
		return false, fmt.Errorf("the server does not permit this runner to start the job; nothing was started: %w", err)
	case signal != nil:
		return false, fmt.Errorf("received %s before the server permitted the start of the job; nothing was started", signal)
	}
	return false, fmt.Errorf("the server did not permit the start of the job within %s; nothing was started: %w", leaveTime, err)
}
