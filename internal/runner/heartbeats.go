package runner

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
	"workflowagent/internal/workflow"
)

// refusedFactor is how many times as long the pauses between heartbeats are while the
// server refuses them other than by a 410. Without any, the job would count as lost.
const refusedFactor = 6

// heartbeats keep the lease of the job alive and bring news of cancellations. They are
// sent until the result is delivered, whatever else fails.
type heartbeats struct {
	server   Server
	interval time.Duration
	stop     *stopper
	log      *logrus.Entry

	finishing chan struct{}
	once      sync.Once
}

func newHeartbeats(server Server, interval time.Duration, stop *stopper, log *logrus.Entry) *heartbeats {
	return &heartbeats{server: server, interval: interval, stop: stop, log: log, finishing: make(chan struct{})}
}

// finish notes that the work is done and only deliveries remain.
func (h *heartbeats) finish() { h.once.Do(func() { close(h.finishing) }) }

// run sends heartbeats until ctx ends. The server's own 410 means that the job has lost its
// lease: by design that cannot happen to a job that may have started something, except when
// the server gave it up as lost. Heartbeats end then, and no further step begins. The
// running step continues: ending pulumi half-way would be worse, and evidence is still
// welcome.
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
		case protocol.Permanent(err):
			if !refused {
				refused = true
				h.log.WithError(err).Warn("the server refuses heartbeats of this job; its work continues")
			}
			if protocol.Gone(err) {
				return
			}
			pause *= refusedFactor // the cause may be repaired
		case err != nil && !failed:
			failed = true
			h.log.WithError(err).Warn("the server does not answer; the job continues and its log is kept")
		case err == nil:
			refused = false
			if failed {
				failed = false
				h.log.Info("the server answers again")
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
