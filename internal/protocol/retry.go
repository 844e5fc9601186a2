package protocol

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/retry"
)

// maxRetryAfter caps every Retry-After, so that one header cannot pause an agent for a day.
const maxRetryAfter = time.Hour

// Retry configures how repeatable calls are retried: request_retry_* in the agent's configuration.
type Retry struct {
	Count   int           // retries after the first try; 0 = none
	Wait    time.Duration // first pause
	MaxWait time.Duration // cap of every pause, Retry-After included
}

// parseRetryAfter reads seconds or a date and returns 0 for an absent, past or malformed value.
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

// newRetrying wraps hc with the retry layer: unlike its defaults, Retry-After is capped, the last
// answer is returned, and nothing is written to standard error.
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

// checkRetry retries transport errors, 429 and 5xx. The library's own policy excludes permanent
// transport errors (certificates, unsupported schemes).
func checkRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if errors.Is(err, errRedirect) || errors.Is(err, errRedirectMethod) {
		return false, nil
	}
	return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
}

// retryLog logs one level lower, because the caller reports the failure itself.
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
