package protocol

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/sirupsen/logrus"
	"github.com/sony/gobreaker/v2"

	"workflowagent/internal/retry"
)

// Breaker configures when polls for work pause. It corresponds to circuit_breaker_* in the agent's
// configuration.
type Breaker struct {
	Failures int           // consecutive failed calls that open it; 0 = never
	Timeout  time.Duration // how long it stays open unless a probe succeeds
}

// probing is the schedule of the probes while the breaker is open.
var probing = retry.Policy{First: 2 * time.Second, Max: time.Minute}

// circuit is the circuit breaker of one client. gobreaker cannot be closed early, so a successful
// probe replaces it.
type circuit struct {
	settings Breaker
	log      *logrus.Entry

	mu       sync.Mutex
	breaker  *gobreaker.TwoStepCircuitBreaker[struct{}] // nil: never opens
	openedAt time.Time
	probes   int // probes since the last successful guarded call; determines the pause
}

func newCircuit(b Breaker, log *logrus.Entry) *circuit {
	c := &circuit{settings: b, log: log}
	c.breaker = c.fresh()
	return c
}

func (c *circuit) fresh() *gobreaker.TwoStepCircuitBreaker[struct{}] {
	if c.settings.Failures <= 0 {
		return nil
	}
	return gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:    "server",
		Timeout: c.settings.Timeout,
		ReadyToTrip: func(n gobreaker.Counts) bool {
			return int(n.ConsecutiveFailures) >= c.settings.Failures
		},
		IsSuccessful: reached,
		IsExcluded: func(err error) bool {
			return errors.Is(err, context.Canceled)
		},
	})
}

// reached reports whether a call with this outcome reached a working server. A refusal, for example
// of a wrong token, also counts.
func reached(err error) bool {
	if err == nil {
		return true
	}
	if Foreign(err) {
		return false
	}
	code := StatusCode(err)
	return code != 0 && code < http.StatusInternalServerError && code != http.StatusTooManyRequests
}

// allow admits a call, or returns an error. The caller must pass the call's outcome to done.
func (c *circuit) allow() (done func(error), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.breaker == nil {
		return func(error) {}, nil
	}
	breaker := c.breaker
	report, err := breaker.Allow()
	if err != nil {
		return nil, ErrCircuitOpen
	}
	return func(err error) { c.record(breaker, report, err) }, nil
}

// record records the outcome of one guarded call.
func (c *circuit) record(breaker *gobreaker.TwoStepCircuitBreaker[struct{}], report func(error), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := breaker.State()
	report(err)
	if breaker != c.breaker {
		return // superseded by a successful probe
	}
	if reached(err) {
		c.probes = 0
	}
	if after := breaker.State(); after != before && after == gobreaker.StateOpen {
		c.openedAt = time.Now()
		c.log.WithError(err).Warnf("the server failed %d times in a row: polling pauses until a probe reaches it, or for %s",
			c.settings.Failures, c.settings.Timeout)
	}
}

// nextProbe returns the pause before the next probe and reports whether c is open. The pause does
// not exceed the remaining timeout.
func (c *circuit) nextProbe() (pause time.Duration, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.breaker == nil || c.breaker.State() != gobreaker.StateOpen {
		return 0, false
	}
	pause = probing.Pause(c.probes, nil)
	c.probes++
	return max(min(pause, time.Until(c.openedAt.Add(c.settings.Timeout))), time.Millisecond), true
}

// close closes an open breaker after a successful probe.
func (c *circuit) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.breaker != nil && c.breaker.State() == gobreaker.StateOpen {
		c.log.Info("the server responds again")
		c.breaker = c.fresh()
	}
}

// AwaitRecovery blocks while the circuit breaker is open. It probes the server at increasing
// intervals. It returns nil when a probe succeeds or the breaker's timeout has passed, or ctx's
// cause if ctx is done first. Only one goroutine may call it at a time.
func (c *Client) AwaitRecovery(ctx context.Context) error {
	for {
		pause, open := c.circuit.nextProbe()
		if !open {
			return nil
		}
		if err := retry.Sleep(ctx, pause); err != nil {
			return err
		}
		if !c.circuit.open() {
			return nil
		}
		if err := c.probe(ctx); err != nil {
			c.log.WithError(err).Debug("the server does not respond yet")
			continue
		}
		c.circuit.close()
		return nil
	}
}

// LongestOpen returns the longest time for which the circuit breaker can stay open.
func (c *Client) LongestOpen() time.Duration { return c.circuit.settings.Timeout }

// BreakerOpen reports whether the circuit breaker currently rejects polls for work.
func (c *Client) BreakerOpen() bool { return c.circuit.open() }

// open reports whether guarded calls are currently rejected.
func (c *circuit) open() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.breaker != nil && c.breaker.State() == gobreaker.StateOpen
}

// probe makes a cheap public call. It sends no token, so it can neither claim a job nor leak a
// token.
func (c *Client) probe(ctx context.Context) error {
	r := call{method: http.MethodGet, path: "/api/capabilities", limit: maxSmallBody}
	r.own = func(a answer) bool {
		var form struct {
			Capabilities []json.RawMessage `json:"capabilities"`
		}
		return a.decode(r, &form) == nil && form.Capabilities != nil
	}
	_, err := c.send(ctx, r)
	if reached(err) {
		return nil
	}
	return fmt.Errorf("probing the server: %w", err)
}

// maxRetryAfter caps every Retry-After, so that one header cannot pause an agent for a day.
const maxRetryAfter = time.Hour

// Retry configures how repeatable calls are retried. It corresponds to request_retry_* in the
// agent's configuration.
type Retry struct {
	Count   int           // retries after the first attempt; 0 = none
	Wait    time.Duration // first pause
	MaxWait time.Duration // limit of every pause, including a Retry-After
}

// parseRetryAfter parses a number of seconds or a date. It returns 0 if the value is absent, past
// or malformed.
func parseRetryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0
	}
	var d time.Duration
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
		d = maxRetryAfter
		if seconds < int64(maxRetryAfter/time.Second) {
			d = time.Duration(seconds) * time.Second
		}
	} else if at, err := http.ParseTime(value); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), maxRetryAfter)
}

// newRetrying returns a client that adds retries to hc. Unlike the library's default, it caps
// Retry-After, returns the last response, and writes nothing to standard error.
func newRetrying(hc *http.Client, r Retry, log *logrus.Entry) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient:   hc,
		Logger:       retryLog{log},
		RetryWaitMin: r.Wait,
		RetryWaitMax: r.MaxWait,
		RetryMax:     r.Count,
		CheckRetry:   checkRetry,
		Backoff: func(first, limit time.Duration, tries int, resp *http.Response) time.Duration {
			var asked error
			if resp != nil {
				asked = &APIError{Wait: parseRetryAfter(resp.Header.Get("Retry-After"), time.Now())}
			}
			return retry.Policy{First: first, Max: limit}.Pause(tries, asked)
		},
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
}

// checkRetry reports whether to retry: after transport errors, 429 and 5xx. The library's default
// policy already excludes permanent transport errors, such as untrusted certificates and
// unsupported schemes.
func checkRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if errors.Is(err, errRedirect) || errors.Is(err, errRedirectMethod) {
		return false, nil
	}
	return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
}

// retryLog passes the library's messages to log, one level lower, because the caller reports the
// failure itself.
type retryLog struct{ log *logrus.Entry }

func (l retryLog) fields(pairs []any) *logrus.Entry {
	fields := make(logrus.Fields, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		if key, ok := pairs[i].(string); ok {
			fields[key] = pairs[i+1]
		}
	}
	return l.log.WithFields(fields)
}

func (l retryLog) Error(msg string, pairs ...any) { l.fields(pairs).Warn(msg) }

func (l retryLog) Warn(msg string, pairs ...any) { l.fields(pairs).Warn(msg) }

func (l retryLog) Info(msg string, pairs ...any) { l.fields(pairs).Debug(msg) }

func (l retryLog) Debug(msg string, pairs ...any) { l.fields(pairs).Debug(msg) }
