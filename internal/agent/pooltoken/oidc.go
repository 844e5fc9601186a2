package pooltoken

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
)

const (
	// A token is renewed after a random fraction of its lifetime between these two values. The
	// remaining lifetime covers an outage of the server.
	renewFrom = 0.75
	renewTo   = 0.85
	// fileInterval is the pause between reads of the file while its token is unusable or rejected.
	fileInterval = 5 * time.Second
	// young is the token age below which a rejection suggests a defect.
	young = time.Minute
	// maxSubjects is how many of the issuer's tokens the agent remembers in order to mask them.
	maxSubjects = 32
)

var (
	unreachableRetry = retry.Policy{First: time.Second, Max: 30 * time.Second}
	// refusedRetry applies while the server rejects the issuer's token, until the operator fixes
	// the cause.
	refusedRetry = retry.Policy{First: time.Second, Max: 5 * time.Minute}
)

// Exchanger exchanges an issuer's token for a pool token.
type Exchanger interface {
	ExchangeToken(ctx context.Context, e protocol.TokenExchange) (protocol.PoolToken, error)
}

// Options configure an exchange. All fields except Life are required.
type Options struct {
	Client       Exchanger
	File         string // file with the issuer's token; read again for each exchange
	Organization string
	PoolID       string
	Life         time.Duration // lifetime to request; 0 leaves the lifetime to the server
	// Problem is called with an error when no fresh token is available, and with nil when a fresh
	// token is available again. It must return immediately.
	Problem func(error)
	Log     *logrus.Entry
}

// OIDC exchanges the token in a file for a pool token, and renews the pool token before it expires.
// [OIDC.Run] must be running. All methods are safe for concurrent use.
type OIDC struct {
	opts Options
	kick chan struct{} // has a buffer of one; signals that the pool token was rejected

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when a new token is available
	current  poolToken
	access   []poolToken // all pool tokens that may still be valid
	subjects []string    // the issuer's most recent tokens
	refusals int         // number of consecutive young tokens that were rejected
}

type poolToken struct {
	value        string
	got, expires time.Time // compared on the monotonic clock, so clock changes have no effect
	refused      bool
}

// good reports whether the token exists, has not expired and was not rejected.
func (t poolToken) good() bool { return t.value != "" && !t.refused && time.Now().Before(t.expires) }

// NewOIDC returns a token source that has no token yet.
func NewOIDC(opts Options) *OIDC {
	return &OIDC{opts: opts, kick: make(chan struct{}, 1), changed: make(chan struct{})}
}

// Token returns a token that the server has not rejected. It waits for one if necessary, and fails
// only when ctx is canceled.
func (o *OIDC) Token(ctx context.Context) (string, error) {
	for {
		o.mu.Lock()
		token, changed := o.current, o.changed
		o.mu.Unlock()
		if token.good() {
			return token.value, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", fmt.Errorf("waiting for a pool token: %w", context.Cause(ctx))
		}
	}
}

// Refused records that the server rejected the token with status 401. It returns true, because
// another token will follow. After repeated rejections, the delay between renewals increases to
// minutes.
func (o *OIDC) Refused(token string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if token != o.current.value || o.current.refused {
		return true // the next token is available or being obtained
	}
	o.current.refused = true
	if time.Since(o.current.got) < young {
		o.refusals++
	} else {
		o.refusals = 0
	}
	select {
	case o.kick <- struct{}{}:
	default:
	}
	return true
}

// Expiry returns the time at which the last token expires, or the zero time before the first
// exchange. good reports whether that token may still be valid.
func (o *OIDC) Expiry() (at time.Time, good bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.current.expires, o.current.good()
}

// Values returns the tokens to mask in logs: the unexpired pool tokens and the issuer's most recent
// tokens.
func (o *OIDC) Values() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	values := slices.Clone(o.subjects)
	for _, token := range o.access {
		if time.Now().Before(token.expires) {
			values = append(values, token.value)
		}
	}
	return values
}

// Run exchanges tokens until ctx is canceled.
func (o *OIDC) Run(ctx context.Context) {
	logged := ""
	for failures := 0; ; {
		subject, err := o.exchange(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			if logged != "" {
				o.opts.Log.Info("the agent has a pool token again")
			}
			failures, logged = 0, ""
			o.opts.Problem(nil)
			if !o.untilRenewal(ctx) {
				return
			}
			continue
		}
		if text := err.Error(); text != logged {
			logged = text
			o.opts.Log.WithError(err).Warn("obtaining a pool token failed; retrying")
		}
		o.opts.Problem(err)
		if !o.untilRetry(ctx, failures, subject, err) {
			return
		}
		failures++
	}
}

// exchange obtains a new pool token. It returns the issuer's token that it used, or "" if it could
// not read that token.
func (o *OIDC) exchange(ctx context.Context) (subject string, err error) {
	subject, err = readFile(o.opts.File)
	if err != nil {
		return "", err
	}
	o.remember(subject)
	got, err := o.opts.exchange(ctx, subject)
	if err != nil {
		return subject, err
	}
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.current = poolToken{value: got.Value, got: now, expires: now.Add(got.Life)}
	o.access = append(slices.DeleteFunc(o.access, func(t poolToken) bool { return now.After(t.expires) }), o.current)
	close(o.changed)
	o.changed = make(chan struct{})
	select {
	case <-o.kick: // discard the rejection of an earlier token
	default:
	}
	o.opts.Log.WithField("expires_in", got.Life.Round(time.Second).String()).Debug("received a pool token")
	return subject, nil
}

func (o Options) exchange(ctx context.Context, subject string) (protocol.PoolToken, error) {
	token, err := o.Client.ExchangeToken(ctx, protocol.TokenExchange{
		Organization: o.Organization, PoolID: o.PoolID, SubjectToken: subject, Life: o.Life,
	})
	if err != nil {
		return token, fmt.Errorf("exchanging the token in oidc_token_file: %w", err)
	}
	return token, nil
}

// Exchange exchanges the token in the file once, to test the configuration. It does not retry, and
// it ignores Problem and Log.
func Exchange(ctx context.Context, opts Options) (protocol.PoolToken, error) {
	subject, err := readFile(opts.File)
	if err != nil {
		return protocol.PoolToken{}, err
	}
	return opts.exchange(ctx, subject)
}

// remember records an issuer's token for masking. It must be called before the agent sends the
// token.
func (o *OIDC) remember(subject string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Contains(o.subjects, subject) {
		return
	}
	o.subjects = append(o.subjects, subject)
	o.subjects = o.subjects[max(0, len(o.subjects)-maxSubjects):]
}

// untilRenewal waits until the token must be replaced. It returns false if ctx is canceled first.
func (o *OIDC) untilRenewal(ctx context.Context) bool {
	o.mu.Lock()
	life := o.current.expires.Sub(o.current.got)
	o.mu.Unlock()
	share := renewFrom + rand.Float64()*(renewTo-renewFrom)
	timer := time.NewTimer(time.Duration(share * float64(life)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-o.kick:
	}
	o.mu.Lock()
	refusals := o.refusals
	o.mu.Unlock()
	if refusals <= 1 {
		return true // without delay: the token was revoked, or the machine was asleep
	}
	return refusedRetry.Wait(ctx, refusals-2, nil) == nil
}

// untilRetry waits after a failed exchange. It returns earlier if the file contains another token.
func (o *OIDC) untilRetry(ctx context.Context, failures int, subject string, err error) bool {
	policy := unreachableRetry
	if protocol.Permanent(err) {
		policy = refusedRetry
	}
	if _, local := errors.AsType[*fileError](err); local {
		policy.Max = fileInterval
	}
	for left := policy.Pause(failures, err); left > 0; left -= fileInterval {
		if retry.Sleep(ctx, min(left, fileInterval)) != nil {
			return false
		}
		if now, err := readFile(o.opts.File); err == nil && subject != "" && now != subject {
			return true
		}
	}
	return true
}
