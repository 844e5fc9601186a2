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
// noticed yet that this agent's previous process ended.
var conflictRetry = retry.Policy{First: time.Second, Max: 30 * time.Second}

// Pauses of the poll loop that are not configured.
const (
	// refusedMaxPause caps the growing pause after a 401, 403 or 404: the
	// operator has to change something first, but need not restart the agent.
	refusedMaxPause = 5 * time.Minute
	// renewedPause is the pause before a fresh token is tried.
	renewedPause = 10 * time.Millisecond
	// quickHold is how short a held poll may be before it is suspicious: a
	// server or proxy that claims to hold and does not must not be spun against.
	quickHold = time.Second
	// maxHold is the longest hold that is asked for; it fits proxies that cut at
	// a minute. holdMargin is what a hold stays below request_timeout.
	maxHold    = 50 * time.Second
	holdMargin = 5 * time.Second
	// firstHold is the hold of the first poll and of those after a failure: the
	// operator should soon see that the server accepts the token.
	firstHold = time.Second
)

// poller is the state of the poll loop.
type poller struct {
	agent   *Agent
	request protocol.PollRequest
	// known says that the server honours the number of free slots. One that does
	// not would hand a job to an agent that has no room for it, so presence is
	// shown only to servers that are known.
	known bool
	// answered says that the last poll was.
	answered bool
	errors   int    // in a row
	quick    int    // held polls in a row that were not held
	problem  string // the last one logged, so that each is logged once
}

// poll asks for work until the agent takes no more.
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

// once polls and returns the pause before the next time.
func (p *poller) once(hard context.Context) time.Duration {
	a := p.agent
	select {
	case <-a.kick: // whatever it was, it is handled now
	default:
	}
	slots := a.freeSlots()
	if hard.Err() != nil {
		return 0 // it has ended the jobs, which is why there is room
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
	a.liveness.pause() // a missing token file is waited for without limit
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
			// Its lease ends, and the server gives it to an agent that has room.
			a.log.WithField("job_id", result.Job.JobID).Warn("the server hands out a job although this agent has no free slot; it is not run here")
			p.known = false // so that no further poll is made without a free slot
			return p.interval(result.RetryAfter)
		}
		p.known = p.known || result.Job.Epoch > 0
		a.accept(hard, *result.Job)
		return p.afterClaim(result)
	}
	return p.afterNothing(result, time.Since(start))
}

// whenKicked cancels a poll that cannot be answered with a job as soon as one
// that can is possible. The returned function ends that and must be called after
// the poll.
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

// afterClaim returns the pause after a job was claimed: none while there is room
// for more, or while the server holds a poll that only shows presence.
func (p *poller) afterClaim(result protocol.PollResult) time.Duration {
	if p.agent.freeSlots() > 0 || p.known && p.hold() > 0 {
		return 0
	}
	return p.interval(result.RetryAfter)
}

// afterNothing returns the pause after an empty answer.
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
		return 0 // what woke the poll may have gone to another agent
	}
	return retry.Policy{First: quickHold, Max: p.agent.opts.PollInterval}.Pause(p.quick-2, nil)
}

// interval is the pause between two polls that are not held.
func (p *poller) interval(retryAfter time.Duration) time.Duration {
	pause := p.agent.opts.PollInterval
	if retryAfter > 0 && !p.agent.opts.KeepInterval {
		pause = retryAfter
	}
	return retry.Spread(pause)
}

// hold is how long the server is asked to hold the poll; 0 does not ask for it.
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

// failed logs the error, once per change, and returns the pause before the
// next try. The same poll id is sent again unless the server has answered it.
func (p *poller) failed(ctx context.Context, token string, err error) time.Duration {
	a := p.agent
	p.answered = false
	if errors.Is(err, protocol.ErrCircuitOpen) {
		// The probes are bounded by the breaker's own timeout.
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
		// The source bounds how often it gets another one, and waits for that.
		pause = retry.Spread(renewedPause)
		advice = "the server no longer accepts the agent's token; getting another one"
	case protocol.Foreign(err): // the server may have claimed a job for this poll
	case code == http.StatusConflict:
		p.renew()
		pause = conflictRetry.Pause(p.errors-1, err)
		advice = "another agent with this identity is or was just connected; retrying"
	case refused(code):
		p.renew()
		if protocol.Permanent(err) { // else it may be a load balancer whose server is away
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

// refused reports whether the operator has to change something before a poll can be
// answered, whoever the answer comes from.
func refused(code int) bool {
	switch code {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
		return true
	}
	return false
}

// refusal says what the operator can do about a poll that is refused for good.
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

// liveness shows that the poll loop makes progress: before each wait the loop states how long
// it may take at most, and is alive until that time is over.
type liveness struct {
	mu  sync.Mutex
	due time.Time // zero: nothing is expected any more
}

// livenessGrace is what a wait may take longer than was stated: a busy machine, the
// few quick things between two waits.
const livenessGrace = time.Minute

// expect states that the next sign comes within d.
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

// Alive reports whether the agent's loop makes progress, for a watchdog: an agent
// that waits for a server that is down, or for its last jobs, is alive.
func (a *Agent) Alive() bool {
	a.liveness.mu.Lock()
	defer a.liveness.mu.Unlock()
	return a.liveness.due.IsZero() || time.Now().Before(a.liveness.due)
}
