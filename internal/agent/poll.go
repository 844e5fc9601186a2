package agent

import (
	"context"
	"errors"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/google/uuid"

	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
)

// conflictRetry follows a 409: another live process has this identity, or the server has not
// noticed the end of this agent's previous process.
var conflictRetry = retry.Policy{First: time.Second, Max: 30 * time.Second}

const (
	// refusedMaxPause caps the growing pause after a 401, 403 or 404: the operator has to make
	// a change first, but need not restart the agent.
	refusedMaxPause = 5 * time.Minute
	renewedPause    = 10 * time.Millisecond
	// quickHold is the shortest plausible hold of a poll: the agent must not spin against a
	// server or proxy that claims to hold polls and does not.
	quickHold = time.Second
	// maxHold is the longest requested hold; it fits proxies that cut at a minute. A hold stays
	// holdMargin below request_timeout.
	maxHold    = 50 * time.Second
	holdMargin = 5 * time.Second
	// firstHold is the hold of the first poll and of those after a failure: the operator must
	// soon see that the server accepts the token.
	firstHold = time.Second
)

type poller struct {
	agent   *Agent
	request protocol.PollRequest
	// known says that the server honours the number of free slots. Any other would hand a job
	// to an agent without a free slot, so the agent shows presence only to known servers.
	known    bool
	answered bool
	errors   int    // in a row
	quick    int    // claimed holds in a row that were too short
	problem  string // the last one logged, so that each is logged once
}

func (a *Agent) poll(hard context.Context) {
	p := &poller{agent: a, known: a.epochs, request: protocol.PollRequest{
		AgentID:   a.opts.Identity.ID,
		SessionID: a.session,
		Hostname:  a.opts.Identity.Hostname,
		PID:       os.Getpid(),
		Version:   a.opts.Version,
		Platform:  runtime.GOOS + "/" + runtime.GOARCH,
		Interval:  a.opts.PollInterval,
		Types:     a.opts.Types,
	}}
	p.renew()
	defer a.liveness.pause()
	for a.draining.Err() == nil && hard.Err() == nil {
		pause := p.once(hard)
		if pause <= 0 {
			continue
		}
		a.liveness.expect(pause)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-a.kick:
		case <-a.ranOne:
			a.drain()
		case <-a.draining.Done():
		}
		timer.Stop()
	}
}

// renew starts a new question: its answer may be another job.
func (p *poller) renew() { p.request.PollID = uuid.NewString() }

func (p *poller) once(hard context.Context) time.Duration {
	a := p.agent
	select {
	case <-a.kick: // this poll handles whatever it signalled
	default:
	}
	slots := a.freeSlots()
	if hard.Err() != nil {
		return 0 // hard has ended the jobs, which freed the slots
	}
	if a.engine.state() != nil {
		slots = 0
	}
	select {
	case <-a.ranOne:
		a.drain()
		return 0
	default:
	}
	if slots == 0 && !p.known {
		return p.interval(0)
	}
	p.request.FreeSlots = slots
	p.request.Wait = p.hold()
	ctx, cancel := context.WithCancel(a.draining)
	defer cancel()
	if slots == 0 {
		defer a.whenKicked(ctx, cancel)()
	}
	a.liveness.pause() // the wait for a missing token file has no limit
	token, err := a.opts.Tokens.Token(ctx)
	if err != nil {
		return 0 // ctx has ended
	}
	a.liveness.expect(max(a.opts.RequestTimeout, p.request.Wait))
	start := time.Now()
	result, err := a.opts.Client.Poll(ctx, token, p.request)
	if err != nil && ctx.Err() != nil {
		return 0
	}
	a.board.polled(err)
	a.opts.Monitor.Polled(err)
	if err != nil {
		return p.failed(ctx, token, err)
	}
	a.opts.Monitor.Activity()
	if p.problem != "" {
		a.log.Info("the server answers polls again")
	}
	p.answered, p.errors, p.problem = true, 0, ""
	p.renew()
	if result.Held {
		p.known = true
	}
	if result.Job != nil {
		if a.freeSlots() == 0 {
			// The claim's lease ends, and the server gives the job to another agent.
			a.log.WithField("job_id", result.Job.JobID).Warn("the server hands out a job although this agent has no free slot; it is not run here")
			p.known = false // no further poll without a free slot
			return p.interval(result.RetryAfter)
		}
		p.known = p.known || result.Job.Epoch > 0
		a.accept(hard, *result.Job)
		return p.afterClaim(result)
	}
	return p.afterNothing(result, time.Since(start))
}

// whenKicked cancels a poll without a free slot once a slot is free. Call end after the poll.
func (a *Agent) whenKicked(ctx context.Context, cancel context.CancelFunc) (end func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-a.kick:
			cancel()
		case <-ctx.Done():
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// afterClaim returns the pause after a claim: none while the agent has a free slot, or while
// the server holds a poll that only shows presence.
func (p *poller) afterClaim(result protocol.PollResult) time.Duration {
	if p.agent.freeSlots() > 0 || p.known && p.hold() > 0 {
		return 0
	}
	return p.interval(result.RetryAfter)
}

func (p *poller) afterNothing(result protocol.PollResult, took time.Duration) time.Duration {
	if !result.Held {
		return p.interval(result.RetryAfter)
	}
	if took >= quickHold {
		p.quick = 0
		return 0
	}
	p.quick++
	if p.quick == 1 {
		return 0 // another agent may have received what woke the poll
	}
	return retry.Policy{First: quickHold, Max: p.agent.opts.PollInterval}.Pause(p.quick-2, nil)
}

func (p *poller) interval(retryAfter time.Duration) time.Duration {
	pause := p.agent.opts.PollInterval
	if retryAfter > 0 && !p.agent.opts.KeepInterval {
		pause = retryAfter
	}
	return retry.Spread(pause)
}

// hold returns how long the server is asked to hold the poll; 0 makes no request.
func (p *poller) hold() time.Duration {
	if p.agent.opts.KeepInterval {
		return 0
	}
	hold := min(maxHold, p.agent.opts.RequestTimeout-holdMargin).Truncate(time.Second)
	if !p.answered {
		hold = min(hold, firstHold)
	}
	return max(hold, 0)
}

// failed logs the error, once per change, and returns the pause before the next attempt, which
// repeats the poll id unless the server has answered it.
func (p *poller) failed(ctx context.Context, token string, err error) time.Duration {
	a := p.agent
	p.answered = false
	if errors.Is(err, protocol.ErrCircuitOpen) {
		// The breaker's own timeout bounds the probes.
		a.liveness.expect(a.opts.Client.LongestOpen() + a.opts.RequestTimeout)
		_ = a.opts.Client.AwaitRecovery(ctx)
		return retry.Spread(10 * time.Millisecond)
	}
	p.errors++
	code := protocol.StatusCode(err)
	pause := retry.Policy{First: a.opts.RetryWait, Max: a.opts.RetryMaxWait}.Pause(p.errors-1, err)
	advice := "asking for work failed; retrying"
	switch {
	case code == http.StatusUnauthorized && !protocol.Foreign(err) && a.opts.Tokens.Refused(token):
		// The source bounds and delays its own renewals.
		pause = retry.Spread(renewedPause)
		advice = "the server no longer accepts the agent's token; getting another one"
	case protocol.Foreign(err): // the server may have claimed a job for this poll
	case code == http.StatusConflict:
		p.renew()
		pause = conflictRetry.Pause(p.errors-1, err)
		advice = "another agent with this identity is or was just connected; retrying"
	case refused(code):
		p.renew()
		if protocol.Permanent(err) { // else it may be a load balancer without its server
			pause = retry.Policy{First: min(a.opts.PollInterval, refusedMaxPause), Max: refusedMaxPause}.Pause(p.errors-1, err)
		}
		advice = refusal(code)
	}
	if problem := err.Error(); problem != p.problem {
		p.problem = problem
		a.log.WithError(err).WithField("pause", pause.Round(time.Millisecond).String()).Warn(advice)
	}
	return pause
}

// refused reports whether the operator has to act first, even if an intermediary answered.
func refused(code int) bool {
	switch code {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
		return true
	}
	return false
}

func refusal(code int) string {
	switch code {
	case http.StatusUnauthorized:
		return "the server does not know this agent's token, or it was revoked: configure the token of a pool of this server; retrying from time to time"
	case http.StatusForbidden:
		return "the server knows this agent's token but gives it no work: it is not a pool's token, or the pool was deleted; configure the token of a pool; retrying from time to time"
	case http.StatusNotFound:
		return "service_url has no API for agents: check service_url, which is the address of the API and not of a console; retrying from time to time"
	}
	return "the server refuses this agent: check token and service_url; retrying from time to time"
}

// liveness shows that the poll loop makes progress: before each wait the loop states its
// maximum duration, and is alive until then.
type liveness struct {
	mu  sync.Mutex
	due time.Time // zero: no further sign is expected
}

// livenessGrace extends each stated wait, for a busy machine and the work between two waits.
const livenessGrace = time.Minute

func (p *liveness) expect(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due = time.Now().Add(d + livenessGrace)
}

// pause states that no further sign comes, as intended.
func (p *liveness) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due = time.Time{}
}

// Alive reports whether the agent's loop makes progress, for a watchdog. An agent that waits
// for a server that is down, or for its last jobs, is alive.
func (a *Agent) Alive() bool {
	a.liveness.mu.Lock()
	defer a.liveness.mu.Unlock()
	return a.liveness.due.IsZero() || time.Now().Before(a.liveness.due)
}
