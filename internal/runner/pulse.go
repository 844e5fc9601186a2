package runner

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// refusedPulse is how many times as long the pauses between heartbeats are while the server
// refuses them other than by a 410. The job would be taken for lost without any.
const refusedPulse = 6

// pulse keeps the lease of the job alive and hears of cancellations. It beats
// until the result is delivered, whatever else goes wrong.
type pulse struct {
	server   Server
	interval time.Duration
	stop     *stopper
	log      *logrus.Entry

	finishing chan struct{}
	once      sync.Once
}

func newPulse(server Server, interval time.Duration, stop *stopper, log *logrus.Entry) *pulse {
	return &pulse{server: server, interval: interval, stop: stop, log: log, finishing: make(chan struct{})}
}

// finish says that the work is done and only deliveries remain.
func (p *pulse) finish() { p.once.Do(func() { close(p.finishing) }) }

// run beats until ctx ends. The server's own 410 means that the lease is not ours any
// more: by design that cannot happen to a job that may have started something, except
// when the server gave it up as lost. It stops the pulse, and no further step begins;
// the running step goes on, for ending pulumi half-way would be worse, and evidence is
// still welcome.
func (p *pulse) run(ctx context.Context) {
	phase, finishing := protocol.PhaseRunning, p.finishing
	failed, refused := false, false
	for {
		pause := p.interval
		callCtx, cancel := context.WithTimeout(ctx, max(p.interval, time.Second))
		answer, err := p.server.Heartbeat(callCtx, phase)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case protocol.Permanent(err):
			if !refused {
				refused = true
				p.log.WithError(err).Warn("The server does not want heartbeats of this job any more; its work goes on")
			}
			if protocol.Gone(err) {
				return
			}
		case err != nil && !failed:
			failed = true
			p.log.WithError(err).Warn("The server does not answer; the job goes on and its log is kept")
		case err == nil && failed:
			failed = false
			p.log.Info("The server answers again")
		}
		if protocol.Permanent(err) {
			pause *= refusedPulse // somebody may mend what makes it refuse
		} else if err == nil {
			refused = false
		}
		if answer.CancelRequested && p.stop.interrupt(workflow.ReasonCancelled) {
			p.log.Info("The deployment was cancelled")
		}
		if answer.ForceRequested {
			p.stop.kill(workflow.ReasonCancelled)
		}
		select {
		case <-ctx.Done():
			return
		case <-finishing:
			phase, finishing = protocol.PhaseFinishing, nil
		case <-time.After(pause - pause/10 + rand.N(pause/5+1)):
		}
	}
}
