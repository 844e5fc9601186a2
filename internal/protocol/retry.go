package protocol

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/sirupsen/logrus"
)

// maxRetryAfter bounds every Retry-After we obey, whatever the server says: an
// agent must not be put to sleep for a day by one header.
const maxRetryAfter = time.Hour

// Retry says how a call that may be repeated is repeated: request_retry_* in the
// agent's configuration.
type Retry struct {
	Count   int           // repetitions after the first try; 0 = none
	Wait    time.Duration // first pause
	MaxWait time.Duration // cap of every pause, Retry-After included
}

// parseRetryAfter reads the header in both its forms, seconds and date, and
// returns 0 for an absent, past or malformed one.
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

// jitter spreads d over the range from 75 % to 125 %, so that many agents do not
// come back in the same instant.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.75 + rand.Float64()/2))
}

// backoff is the pause after the given number of failed tries: it doubles from
// first up to limit, jittered. retryAfter, if there is one, takes its place,
// capped by limit too but never shortened by the jitter.
func backoff(first, limit time.Duration, tries int, retryAfter time.Duration) time.Duration {
	if retryAfter > 0 {
		d := min(retryAfter, limit)
		return d + time.Duration(rand.Float64()*0.1*float64(d))
	}
	d := first
	for range tries {
		if d >= limit {
			break
		}
		d *= 2
	}
	return min(jitter(min(d, limit)), limit)
}

// Backoff is the pause a caller with its own loop takes after err: it doubles
// with tries (0 = after the first failure) from first to limit, jittered; the
// server's Retry-After takes its place, capped by limit.
func Backoff(first, limit time.Duration, tries int, err error) time.Duration {
	return backoff(first, limit, tries, RetryAfter(err))
}

// newRetrying wraps hc with the retry layer. Its own defaults are replaced where
// they would hurt: Retry-After is capped, the last answer survives, nothing is
// written to standard error.
func newRetrying(hc *http.Client, r Retry, log *logrus.Entry) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient:   hc,
		Logger:       retryLog{log},
		RetryWaitMin: r.Wait,
		RetryWaitMax: r.MaxWait,
		RetryMax:     r.Count,
		CheckRetry:   checkRetry,
		Backoff: func(first, limit time.Duration, tries int, resp *http.Response) time.Duration {
			var after time.Duration
			if resp != nil {
				after = parseRetryAfter(resp.Header.Get("Retry-After"), time.Now())
			}
			return backoff(first, limit, tries, after)
		},
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
}

// checkRetry repeats what may go better next time: transport errors, 429 and
// 5xx. The library's own policy knows the transport errors that never heal
// (certificates, unsupported schemes).
func checkRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if errors.Is(err, errRedirect) || errors.Is(err, errRedirectMethod) {
		return false, nil
	}
	return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
}

// retryLog writes the retry layer's messages to our logger, one level lower than
// it thinks they deserve: the caller reports the failure itself.
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

// Error logs at warning level.
func (l retryLog) Error(msg string, pairs ...any) { l.fields(pairs).Warn(msg) }

// Warn logs at warning level.
func (l retryLog) Warn(msg string, pairs ...any) { l.fields(pairs).Warn(msg) }

// Info logs at debug level.
func (l retryLog) Info(msg string, pairs ...any) { l.fields(pairs).Debug(msg) }

// Debug logs at debug level.
func (l retryLog) Debug(msg string, pairs ...any) { l.fields(pairs).Debug(msg) }
