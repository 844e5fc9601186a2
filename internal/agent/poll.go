package agent

import (
	"context"
	"errors"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
	"workflowagent/internal/workflow"
)

// conflictRetry is the retry policy after a 409. Either another live process has this identity, or
// the server has not yet noticed that this agent's previous process exited, as after that of a container was killed.
// A short pause lets the agent work soon after the session of that process has ended.
var conflictRetry = retry.Policy{First: time.Second, Max: 5 * time.Second}

const (
	// refusedMaxPause bounds the increasing pause after a 401, 403 or 404. The operator must
	// correct the configuration, but does not have to restart the agent.
	refusedMaxPause = 5 * time.Minute
	renewedPause    = 10 * time.Millisecond
	// restartPause bounds the pause after the first poll that does not reach the server, because a server restarts
	// within seconds, and the pause before the first probe of an open circuit breaker.
	restartPause = 2 * time.Second
	// quickHold is the shortest plausible time for which a server holds a poll. It prevents the
	// agent from polling in a tight loop if the server or a proxy claims to hold polls but does
	// not.
	quickHold = time.Second
	// maxHold is the longest time for which the agent asks the server to hold a poll. It is
	// suitable for proxies with a timeout of one minute. The requested time is always at least
	// holdMargin shorter than request_timeout.
	maxHold    = 50 * time.Second
	holdMargin = 5 * time.Second
	// firstHold is the hold time for the first poll and for each poll after a failure. It is short,
	// because the operator must see soon that the server accepts the token.
	firstHold = time.Second
)

type poller struct {
	agent   *Agent
	request protocol.PollRequest
	// known is true if the server respects the number of free slots. Other servers would assign a
	// job to an agent without a free slot, so the agent polls them only when it has one.
	known    bool
	stock    bool // the server was asked, and known cannot become true without a claim
	answered bool
	errors   int    // consecutive failures
	quick    int    // consecutive polls that returned too early from a server that claims to hold polls
	problem  string // the last logged error, to log each error only once
}

func (a *Agent) poll() {
	p := &poller{agent: a, known: a.epochs, request: protocol.PollRequest{
		AgentID:   a.opts.Identity.ID,
		SessionID: a.session,
		Hostname:  a.opts.Identity.Hostname,
		PID:       os.Getpid(),
		Version:   a.opts.Version,
		Platform:  runtime.GOOS + "/" + runtime.GOARCH,
		Interval:  a.opts.PollingInterval,
		Types:     workflow.Runnable(a.opts.Types), // the server must not assign jobs that the agent would refuse
	}}
	p.renew()
	defer a.liveness.pause()
	for a.draining.Err() == nil {
		pause := p.once()
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

// renew assigns a new poll ID, so the next response can contain another job.
func (p *poller) renew() { p.request.PollID = uuid.NewString() }

func (p *poller) once() time.Duration {
	a := p.agent
	select {
	case <-a.kick: // the next poll takes the signalled change into account
	default:
	}
	slots, capacity := a.freeSlots(), a.opts.MaxConcurrentJobs
	if a.engine.state() != nil || a.disk.state() != nil {
		slots, capacity = 0, 0
	}
	select {
	case <-a.ranOne:
		a.drain()
		return 0
	default:
	}
	if slots == 0 && !p.known && (capacity > 0 || p.stock) {
		return p.interval(0)
	}
	p.request.FreeSlots, p.request.Capacity = slots, capacity
	p.request.Wait = p.hold()
	ctx, cancel := context.WithCancel(a.draining)
	defer cancel()
	if slots == 0 { // interrupt the poll when a slot becomes free
		var waiting sync.WaitGroup
		defer waiting.Wait()
		defer cancel()
		waiting.Go(func() {
			select {
			case <-a.kick:
				cancel()
			case <-ctx.Done():
			}
		})
	}
	a.liveness.pause() // a missing token file can delay the poll for any time
	token, err := a.opts.Tokens.Token(ctx)
	if err != nil {
		return 0 // ctx was canceled
	}
	a.liveness.expect(max(a.opts.RequestTimeout, p.request.Wait))
	if slots == 0 && !p.known {
		return p.recognize(ctx, token)
	}
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
		a.log.Info("polling the server succeeded again")
	}
	p.answered, p.errors, p.problem = true, 0, ""
	p.request.Drained = result.Drained
	if a.board.drained(result.Drained) {
		if result.Drained {
			a.log.Info("an administrator has drained this agent on the server: the server hands out no jobs to it; its jobs continue")
		} else {
			a.log.Info("the server hands out jobs to this agent again")
		}
	}
	p.renew()
	if result.Held {
		p.known = true
	}
	if result.Job != nil {
		if a.freeSlots() == 0 {
			// The claim's lease will expire, and the server will assign the job to another agent.
			a.log.WithField("job_id", result.Job.JobID).Warn("the server assigned a job although this agent has no free slot; not running it")
			p.known, p.stock = false, true // stop polling until a slot is free
			return p.interval(result.RetryAfter)
		}
		p.known = p.known || result.Job.Epoch > 0
		a.accept(*result.Job)
		return p.afterClaim(result)
	}
	return p.afterNothing(result, time.Since(start))
}

// recognize asks the server what it is, for an agent that could not start jobs since it started.
// Without polls, the server would say that no agent is connected.
func (p *poller) recognize(ctx context.Context, token string) time.Duration {
	a := p.agent
	respects, err := a.opts.Client.RespectsSlots(ctx, token)
	switch {
	case err != nil && ctx.Err() != nil:
		return 0
	case err != nil:
		a.board.polled(err)
		a.opts.Monitor.Polled(err)
		return p.failed(ctx, token, err)
	case respects:
		p.known = true
		return 0
	}
	p.stock = true
	return p.interval(0)
}

// afterClaim returns the pause after a claim. The pause is 0 while the agent has a free slot. It is
// also 0 while the server holds polls that only report the agent's presence.
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
		return 0 // another agent may have claimed the job that woke this poll
	}
	return retry.Policy{First: quickHold, Max: p.agent.opts.PollingInterval}.Pause(p.quick-2, nil)
}

func (p *poller) interval(retryAfter time.Duration) time.Duration {
	pause := p.agent.opts.PollingInterval
	if retryAfter > 0 && !p.agent.opts.PollingIntervalOverride {
		pause = retryAfter
	}
	return retry.Spread(pause)
}

// hold returns how long the agent asks the server to hold the poll. 0 means that the agent does not
// ask for a hold.
func (p *poller) hold() time.Duration {
	if p.agent.opts.PollingIntervalOverride {
		return 0
	}
	hold := min(maxHold, p.agent.opts.RequestTimeout-holdMargin).Truncate(time.Second)
	if !p.answered {
		hold = min(hold, firstHold)
	}
	return max(hold, 0)
}

// failed logs the error if it differs from the last one, and returns the pause before the next
// attempt. The next attempt uses the same poll ID, unless the server itself has responded.
func (p *poller) failed(ctx context.Context, token string, err error) time.Duration {
	a := p.agent
	p.answered = false
	if errors.Is(err, protocol.ErrCircuitOpen) {
		// The breaker's own timeout limits the rate of its probes.
		a.liveness.expect(a.opts.Client.LongestOpen() + a.opts.RequestTimeout)
		_ = a.opts.Client.AwaitRecovery(ctx)
		return retry.Spread(10 * time.Millisecond)
	}
	p.errors++
	code := protocol.StatusCode(err)
	refusal := refusals[code]
	policy := retry.Policy{First: a.opts.Retry.Wait, Max: a.opts.Retry.MaxWait}
	failures := p.errors - 1
	away := code == 0 || code >= http.StatusInternalServerError
	if away && (failures == 0 || a.opts.Client.BreakerOpen()) {
		policy.First, failures = min(policy.First, restartPause), 0
	}
	pause := policy.Pause(failures, err)
	advice := "polling for jobs failed; retrying"
	switch {
	case code == http.StatusUnauthorized && !protocol.Foreign(err) && a.opts.Tokens.Refused(token):
		// The pause can be short, because the token source itself limits how often it renews the
		// token.
		pause = retry.Spread(renewedPause)
		advice = "the server no longer accepts the agent's token; obtaining another token"
	case protocol.Foreign(err): // the server may have claimed a job for this poll
	case code == http.StatusConflict:
		p.renew()
		pause = conflictRetry.Pause(p.errors-1, err)
		advice = "another agent with this identity is connected or was until just now; retrying until its session has ended, within a minute after a restart"
	case refusal != "":
		p.renew()
		if protocol.Permanent(err) { // otherwise, the response may be from a load balancer without a backend
			pause = retry.Policy{First: min(a.opts.PollingInterval, refusedMaxPause), Max: refusedMaxPause}.Pause(p.errors-1, err)
		}
		advice = refusal + "; retrying occasionally"
	}
	if problem := err.Error(); problem != p.problem {
		p.problem = problem
		a.log.WithError(err).WithField("pause", pause.Round(time.Millisecond).String()).Warn(advice)
	}
	return pause
}

const refusedAgent = "the server rejected this agent: check token and service_url"

// refusals maps status codes to the log messages for responses that require the operator to act,
// even if an intermediary sent them.
var refusals = map[int]string{
	http.StatusUnauthorized: "this agent's token is unknown to the server or was revoked: configure the token of one of this server's pools",
	http.StatusForbidden:    "the server accepts this agent's token but assigns no jobs to it: the token is not a pool token, or the pool was deleted; configure a pool token",
	http.StatusNotFound:     "service_url does not serve the agent API: set service_url to the address of the API, not of the console",
	http.StatusBadRequest:   refusedAgent,
	http.StatusGone:         refusedAgent,
}

// liveness reports whether the poll loop makes progress. Before each wait, the loop states the
// maximum duration of the wait. It counts as alive until that time has passed.
type liveness struct {
	due atomic.Pointer[time.Time] // nil if the loop does not have to report progress
}

// livenessGrace extends each stated wait, to allow for a busy machine and for the work between two
// waits.
const livenessGrace = time.Minute

func (p *liveness) expect(d time.Duration) {
	due := time.Now().Add(d + livenessGrace)
	p.due.Store(&due)
}

// pause records that the loop has intentionally stopped reporting progress.
func (p *liveness) pause() { p.due.Store(nil) }

// Alive reports to a watchdog whether the agent's poll loop makes progress. An agent that waits for
// an unavailable server, or for its last jobs, is alive.
func (a *Agent) Alive() bool {
	due := a.liveness.due.Load()
	return due == nil || time.Now().Before(*due)
}
