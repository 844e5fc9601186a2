package credentials

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/redact"
	"workflowagent/internal/retry"
	"workflowagent/internal/termtext"
)

// A token is renewed when this fraction of its lifetime has passed. Azure's libraries use a token
// for up to 10 minutes after they have read its file, so a token of 15 minutes must be at most 5
// minutes old in the file.
const renewAfter = 4

// minRenewal is the shortest time between two renewals of a token, whatever lifetime it claims.
const minRenewal = 10 * time.Second

// token is an identity token. The zero value means that there is none.
type token struct {
	text     string
	claims   claims
	expires  time.Time // zero: unknown
	renewAt  time.Time // zero: unknown
	lifetime time.Duration
}

// claims are the claims that trust policies check.
type claims struct {
	Issuer   string   `json:"iss"`
	Subject  string   `json:"sub"`
	Audience audience `json:"aud"`
	IssuedAt int64    `json:"iat"`
	Expires  int64    `json:"exp"`
}

// audience is a claim that is a string or a list.
type audience string

func (a *audience) UnmarshalJSON(data []byte) error {
	var list []string
	if json.Unmarshal(data, &list) == nil {
		*a = audience(strings.Join(list, ", "))
		return nil
	}
	return json.Unmarshal(data, (*string)(a))
}

func (c claims) String() string {
	if c.Subject == "" {
		return "unknown, because the token is not a JWT"
	}
	return termtext.OneLine(fmt.Sprintf("subject %q, audience %q, issuer %q", c.Subject, c.Audience, c.Issuer), maxText)
}

// parseClaims reads a token's claims. The clouds check its signature.
func parseClaims(text string) claims {
	var c claims
	if parts := strings.Split(text, "."); len(parts) == 3 {
		if data, err := base64.RawURLEncoding.DecodeString(parts[1]); err == nil && json.Unmarshal(data, &c) == nil {
			return c
		}
	}
	return claims{}
}

// launchToken returns the token of a launch, whose age only its claims tell.
func launchToken(text string, now time.Time) token {
	t := token{text: text, claims: parseClaims(text)}
	if t.claims.Expires > t.claims.IssuedAt && t.claims.IssuedAt > 0 {
		issued := time.Unix(t.claims.IssuedAt, 0)
		if issued.After(now) {
			issued = now // the clocks differ
		}
		t.begin(issued, time.Duration(t.claims.Expires-t.claims.IssuedAt)*time.Second)
	}
	return t
}

// issuedToken returns a token that has just arrived. Its lifetime does not depend on this host's
// clock.
func issuedToken(answer protocol.IdentityToken, now time.Time) token {
	t := launchToken(answer.Token, now)
	t.lifetime = cmp.Or(t.lifetime, max(answer.ExpiresAt.Sub(now), 0))
	t.begin(now, t.lifetime)
	return t
}

func (t *token) begin(at time.Time, lifetime time.Duration) {
	t.lifetime = lifetime
	t.expires = at.Add(lifetime)
	t.renewAt = at.Add(retry.Spread(max(lifetime/renewAfter, minRenewal)))
}

// use makes t the job's token.
func (k *Keeper) use(t token) error {
	if err := k.opts.Mask(redact.Secret{Name: "the OIDC token", Value: t.text}); err != nil {
		return err
	}
	// A step that begins now gets the same token in its variable and in the file.
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.writeFile(fileToken, []byte(t.text)); err != nil {
		return err
	}
	k.token = t
	select {
	case k.arrived <- struct{}{}:
	default:
	}
	return nil
}

// current returns the job's token.
func (k *Keeper) current() token {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.token
}

// freshToken returns a token that is not due for renewal.
func (k *Keeper) freshToken(ctx context.Context) (token, error) {
	t := k.current()
	if t.text != "" && time.Now().Before(t.renewAt) {
		return t, nil
	}
	short, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	err := renewals.Do(short, func(err error) bool { return !final(err) }, func() error { return k.renew(short) })
	t = k.current()
	switch {
	case err == nil:
		return t, nil
	case t.text == "":
		return token{}, fmt.Errorf("the server issued no identity token for this deployment, so it cannot obtain cloud credentials: %w", err)
	case t.expires.IsZero() || time.Now().Before(t.expires):
		return t, nil // an expired token is an error of the renewal
	}
	return token{}, fmt.Errorf("the deployment's identity token expired at %s and could not be renewed: %w", clock(t.expires), err)
}

// renew requests a token, unless another call has just done so.
func (k *Keeper) renew(ctx context.Context) error {
	before := k.current()
	k.renewing.Lock()
	defer k.renewing.Unlock()
	if now := k.current(); now.text != before.text {
		return nil
	}
	answer, err := k.opts.Server.IdentityToken(ctx, "")
	if err != nil {
		return err
	}
	return k.use(issuedToken(answer, time.Now()))
}

// ErrNoIssuer is the error of a [Server] that can issue no identity tokens.
var ErrNoIssuer = errors.New("the job runs without a server")

// final reports whether no later call can succeed: a stock server does not know the call, and after
// a 410 the job is over.
func final(err error) bool {
	return errors.Is(err, ErrNoIssuer) || protocol.Gone(err) || protocol.UnknownCall(err)
}

// keepToken renews the token whenever it is due.
func (k *Keeper) keepToken(ctx context.Context) {
	for {
		t := k.current()
		if t.renewAt.IsZero() { // no token, or one that is not a JWT
			select {
			case <-ctx.Done():
				return
			case <-k.arrived:
			}
			continue
		}
		if retry.Sleep(ctx, time.Until(t.renewAt)) != nil {
			return
		}
		if now := k.current(); now.text == t.text && !k.replace(ctx, t) {
			return
		}
	}
}

// replace replaces the token t and reports whether it succeeded. It repeats failed calls, and
// reports the expiry of t once.
func (k *Keeper) replace(ctx context.Context, t token) bool {
	reported := false
	for failures := 0; ; failures++ {
		err := k.renew(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case err == nil:
			if reported && k.opts.Settings.Any() {
				k.opts.Notify("The deployment's identity token was renewed")
			}
			return true
		case failures == 0:
			k.opts.Log.WithError(err).Warn("renewing the job's OIDC token")
		}
		left := time.Until(t.expires)
		if left <= 0 && !reported {
			reported = true
			k.reportExpiry(t, err)
		}
		pause := renewals.Pause(failures, err)
		switch {
		case final(err) && reported:
			return false
		case final(err):
			pause = left
		case left > 0:
			pause = min(pause, left) // to report the expiry in time
		}
		if retry.Sleep(ctx, pause) != nil {
			return false
		}
	}
}

func (k *Keeper) reportExpiry(t token, err error) {
	if !k.opts.Settings.Any() {
		return // the job did not ask for it; the runner's own log has the error
	}
	k.opts.Notify(fmt.Sprintf("warning: the deployment's identity token expired at %s and could not be renewed, so cloud credentials that need a new token fail: %v", clock(t.expires), err))
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }
