package runner

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
	"workflowagent/internal/workflow"
)

// refusedFactor multiplies the pause after a refusal other than 410. The heartbeats continue,
// because the job needs its lease.
const refusedFactor = 6

// heartbeats renew the lease and receive cancellations until the result is delivered.
type heartbeats struct {
	server   Server
	interval time.Duration
	stop     *stopper
	log      *logrus.Entry
	// restarts is set once it is known that the server assigns the job again when its lease expires.
	restarts atomic.Bool

	finishing chan struct{}
	once      sync.Once
}

func newHeartbeats(server Server, interval time.Duration, stop *stopper, log *logrus.Entry) *heartbeats {
	return &heartbeats{server: server, interval: interval, stop: stop, log: log, finishing: make(chan struct{})}
}

func (h *heartbeats) finish() { h.once.Do(func() { close(h.finishing) }) }

func (h *heartbeats) isFinishing() bool {
	select {
	case <-h.finishing:
		return true
	default:
		return false
	}
}

// run sends heartbeats until ctx is canceled. A 410 from the server itself means that the job has
// lost its lease. By design, this happens to a started deployment only if the server declared the job
// lost. Then run returns and no further step starts. The running step continues, because
// interrupting pulumi would be worse, and the server still accepts the log and the result. A policy
// evaluation ends at once: the server has assigned it again, and nothing of this claim counts.
func (h *heartbeats) run(ctx context.Context) {
	phase, finishing := protocol.PhaseRunning, h.finishing
	failed, refused := false, false
	for {
		pause := h.interval
		callCtx, cancel := context.WithTimeout(ctx, max(h.interval, time.Second))
		answer, err := h.server.Heartbeat(callCtx, phase)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case protocol.Gone(err) && h.isFinishing():
			return // the server has the result
		case protocol.Permanent(err):
			if !refused {
				refused = true
				h.log.WithError(err).Warn("the server refuses this job's heartbeats; the job continues")
			}
			if protocol.Gone(err) {
				if h.restarts.Load() {
					h.stop.interrupt(workflow.ReasonLost)
				}
				return
			}
			pause *= refusedFactor // the operator might repair the cause
		case err != nil && !failed:
			failed = true
			h.log.WithError(err).Warn("the server does not answer; the job continues and keeps its log")
		case err == nil:
			refused = false
			if failed {
				failed = false
				h.log.Info("the server responds again")
			}
		}
		if answer.CancelRequested && h.stop.interrupt(workflow.ReasonCancelled) {
			h.log.Info("the deployment was cancelled")
		}
		if answer.ForceRequested {
			h.stop.kill(workflow.ReasonCancelled)
		}
		select {
		case <-ctx.Done():
			return
		case <-finishing:
			phase, finishing = protocol.PhaseFinishing, nil
		case <-time.After(retry.Spread(pause)):
		}
	}
}
