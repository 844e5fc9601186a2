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

// Pauses between exchanges.
const (
	// A token is renewed when a share of its life between these has passed. The rest
	// of it bridges a server that is away.
	renewFrom = 0.75
	renewTo   = 0.85
	// fileInterval is how often a file is looked at that has no usable token, or one
	// that the server refuses.
	fileInterval = 5 * time.Second
	// young is how long a token lives at least whose refusal is no sign of a defect.
	young = time.Minute
	// maxSubjects is how many tokens of the issuer are remembered to be masked.
	maxSubjects = 32
)

var (
	unreachableRetry = retry.Policy{First: time.Second, Max: 30 * time.Second}
	// refusedRetry is for a server that refuses the token: the operator has to act first.
	refusedRetry = retry.Policy{First: time.Second, Max: 5 * time.Minute}
)

// Exchanger is the server's side of an exchange.
type Exchanger interface {
	ExchangeToken(ctx context.Context, e protocol.TokenExchange) (protocol.PoolToken, error)
}

// Options say what is exchanged and where. All but Life are required.
type Options struct {
	Client       Exchanger
	File         string // with the issuer's token; read anew for each exchange
	Organization string
	PoolID       string
	Life         time.Duration // to ask for; 0 leaves it to the server
	// Problem is told when no fresh token can be had, and nil when one was got again.
	// It must return at once.
	Problem func(error)
	Log     *logrus.Entry
}

// OIDC exchanges the token in a file for the pool's token and keeps the latter
// fresh. [OIDC.Run] must be running. All methods are safe for concurrent use.
type OIDC struct {
	opts Options
	kick chan struct{} // room for one: the pool's token was refused

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when there is a new token
	current  poolToken
	access   []poolToken // all that may still be good
	subjects []string    // the last of the issuer's tokens
	refusals int         // young tokens in a row that were refused
}

// poolToken is one token that was got.
type poolToken struct {
	value        string
	got, expires time.Time // their monotonic parts count: a clock that is set changes nothing
	refused      bool
}

// NewOIDC returns a source that has no token yet.
func NewOIDC(opts Options) *OIDC {
	return &OIDC{opts: opts, kick: make(chan struct{}, 1), changed: make(chan struct{})}
}

// Token returns a token that is good as far as is known. If there is none it waits
// for one; it fails only when ctx ends.
func (o *OIDC) Token(ctx context.Context) (string, error) {
	for {
		o.mu.Lock()
		token, changed := o.current, o.changed
		o.mu.Unlock()
		if token.value != "" && !token.refused && time.Now().Before(token.expires) {
			return token.value, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", fmt.Errorf("waiting for a token of the pool: %w", context.Cause(ctx))
		}
	}
}

// Refused tells that the server answered 401 to the token, and reports true: a
// fresh one is under way. Tokens that are refused again and again are renewed at
// a growing pace of up to minutes.
func (o *OIDC) Refused(token string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if token != o.current.value || o.current.refused {
		return true // the next one is there, or coming, already
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

// Expiry returns when the token expires that was got last, the zero time before the
// first one, and whether the token is good as far as is known.
func (o *OIDC) Expiry() (at time.Time, good bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.current.expires, o.current.value != "" && !o.current.refused && time.Now().Before(o.current.expires)
}

// Values returns the tokens that must not show in a log: those of the pool that
// are not expired, and the issuer's last ones.
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

// Run exchanges tokens until ctx ends.
func (o *OIDC) Run(ctx context.Context) {
	told := ""
	for failures := 0; ; {
		subject, err := o.exchange(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			if told != "" {
				o.opts.Log.Info("The agent has a token of its pool again")
			}
			failures, told = 0, ""
			o.opts.Problem(nil)
			if !o.untilRenewal(ctx) {
				return
			}
			continue
		}
		if text := err.Error(); text != told {
			told = text
			o.opts.Log.WithError(err).Warn("No token of the pool could be got; trying again")
		}
		o.opts.Problem(err)
		if !o.untilRetry(ctx, failures, subject, err) {
			return
		}
		failures++
	}
}

// exchange reads the file, exchanges what is in it and keeps the answer. It also
// returns the token that was exchanged, or tried, if there was one.
func (o *OIDC) exchange(ctx context.Context) (subject string, err error) {
	subject, err = readFile(o.opts.File)
	if err != nil {
		return "", err
	}
	o.remember(subject)
	got, err := o.opts.Client.ExchangeToken(ctx, protocol.TokenExchange{
		Organization: o.opts.Organization, PoolID: o.opts.PoolID, SubjectToken: subject, Life: o.opts.Life,
	})
	if err != nil {
		return subject, fmt.Errorf("exchanging the token in oidc_token_file: %w", err)
	}
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.current = poolToken{value: got.Value, got: now, expires: now.Add(got.Life)}
	o.access = append(slices.DeleteFunc(o.access, func(t poolToken) bool { return now.After(t.expires) }), o.current)
	close(o.changed)
	o.changed = make(chan struct{})
	select {
	case <-o.kick: // it was about an earlier token
	default:
	}
	o.opts.Log.WithField("expires_in", got.Life.Round(time.Second).String()).Debug("Got a token of the pool")
	return subject, nil
}

// remember notes a token of the issuer before it is sent anywhere.
func (o *OIDC) remember(subject string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Contains(o.subjects, subject) {
		return
	}
	o.subjects = append(o.subjects, subject)
	o.subjects = o.subjects[max(0, len(o.subjects)-maxSubjects):]
}

// untilRenewal waits until the current token should be replaced, and returns
// false if ctx ended before.
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
		return true // at once: it was revoked, or the machine has slept
	}
	return refusedRetry.Wait(ctx, refusals-2, nil) == nil
}

// untilRetry waits after an exchange that failed. A token that the server refuses,
// or cannot be read, is not tried again at once, but another one in the file is.
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
