package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/reach"
	"workflowagent/internal/words"
)

// Limits for clock skew. Some issuers' tokens are valid for only a few minutes.
const (
	skewWarn = 30 * time.Second
	skewFail = 5 * time.Minute
)

// expiryWarn is how long before its expiry a certificate causes a warning.
const expiryWarn = 14 * 24 * time.Hour

// checkProxy traces the complete connection to the server. Each of the following checks reports a
// part of this trace.
func (e *examination) checkProxy(ctx context.Context) Result {
	c := e.opts.Config
	if e.opts.Offline {
		return offline()
	}
	ca, err := c.CACertificates()
	if err != nil {
		return fail("ca_certificate_file: "+err.Error(), "correct ca_certificate_file")
	}
	e.way = reach.Try(ctx, c.ServiceURL+protocol.StatusProbe, reach.Options{CAPEM: ca, Proxy: e.opts.Proxy, UserAgent: e.opts.UserAgent})
	switch {
	case e.way.Failed == reach.StageURL:
		return fail(e.way.Problem, e.way.Advice)
	case e.way.Proxy != "":
		return ok(c.ServiceURL + " is reached through the proxy " + e.way.Proxy)
	}
	return ok(c.ServiceURL + " is reached directly")
}

func (e *examination) checkDNS(context.Context) Result {
	if !e.way.Reached(reach.StageDNS) {
		return fail(e.way.Problem, e.way.Advice)
	}
	return ok(addresses(e.way))
}

func addresses(t *reach.Trace) string {
	return fmt.Sprintf("%s is %s", t.Host, strings.Join(t.Addresses, ", "))
}

func (e *examination) checkTCP(context.Context) Result {
	switch {
	case !e.way.Reached(reach.StageConnect):
		return fail(e.way.Problem, e.way.Advice)
	case len(e.way.Refused) > 0:
		return warn(e.way.Connected+" accepts connections, but other addresses of the host do not",
			"fix those addresses, or remove them from DNS: each attempt costs time", e.way.Refused...)
	}
	return ok(e.way.Connected + " accepts connections")
}

func (e *examination) checkTLS(context.Context) Result {
	t := e.way
	switch {
	case strings.HasPrefix(t.URL, "http:"):
		return skip("service_url is plain http, so nothing is encrypted")
	case t.Failed == reach.StageTLS:
		return withChain(fail(t.Problem, t.Advice), t)
	case len(t.Certificates) == 0:
		return fail(t.Problem, t.Advice) // the trace failed at an earlier step
	}
	leaf := t.Certificates[0]
	found := fmt.Sprintf("%s, certificate of %s, valid until %s", t.TLSVersion, leaf.Subject, leaf.NotAfter.Format(time.DateOnly))
	if t.PrivateCA {
		found += ", trusted by ca_certificate_file"
	}
	for _, c := range t.Certificates {
		if left := time.Until(c.NotAfter); left < expiryWarn {
			return withChain(warn(found, fmt.Sprintf("renew the certificate of %s, which expires in %d hours", c.Subject, int(left.Hours()))), t)
		}
	}
	return withChain(ok(found), t)
}

func withChain(r Result, t *reach.Trace) Result {
	for _, c := range t.Certificates {
		r.Details = append(r.Details, fmt.Sprintf("%s, by %s, until %s", c.Subject, c.Issuer, c.NotAfter.Format(time.DateOnly)))
	}
	return r
}

func (e *examination) checkServer(context.Context) Result {
	if e.way.Failed == reach.StageTLS {
		return skip("not checked, because of: TLS")
	}
	return judge(e.way)
}

// judge checks whether the response looks like the response of a control plane.
func judge(t *reach.Trace) Result {
	switch {
	case t.Failed != "":
		return fail(t.Problem, t.Advice)
	case t.Location != "":
		return fail(fmt.Sprintf("%s answers with a redirect to %s", t.URL, t.Location), "set service_url to the URL of the control plane's API; the token does not follow redirects")
	case t.Code == http.StatusUnauthorized, t.Code == http.StatusForbidden:
		return ok(fmt.Sprintf("answers in %d ms", t.Took.Milliseconds()))
	case t.Code >= 500:
		return fail(fmt.Sprintf("%s answers with status %d", t.URL, t.Code), "check the server's log; the agent keeps trying")
	}
	return warn(fmt.Sprintf("%s answers with status %d (%s), unlike a control plane that requires a token", t.URL, t.Code, t.ContentType),
		"check that service_url is the base URL of the control plane's API, such as https://api.pulumi.com")
}

func (e *examination) checkClock(context.Context) Result { return clock(e.way) }

// clock compares the server's clock with the clock of the machine or container on which the trace t
// was made.
func clock(t *reach.Trace) Result {
	if !t.SkewKnown {
		return skip("the server does not report its time")
	}
	skew, direction := t.Skew, "ahead of"
	if skew < 0 {
		skew, direction = -skew, "behind"
	}
	found := fmt.Sprintf("the clock is %s %s the server's", words.Duration(skew.Round(time.Second)), direction)
	advice := "set the clock, preferably through a time service (NTP): otherwise tokens and certificates seem expired or not yet valid"
	switch {
	case skew > skewFail:
		return fail(found, advice)
	case skew > skewWarn:
		return warn(found, advice)
	case skew < 2*time.Second:
		return ok("the clock agrees with the server's")
	}
	return ok(found)
}

func (e *examination) checkToken(ctx context.Context) Result {
	c := e.opts.Config
	switch {
	case e.opts.Client == nil:
		return skip("the server's URL is invalid")
	case e.opts.Token == nil:
		return fail("no token is configured", "run configure, or set token or PULUMI_AGENT_TOKEN")
	}
	what := "the token"
	if c.UsesOIDC() {
		what = "the token exchanged for oidc_token_file"
	}
	token, err := e.opts.Token(ctx)
	if err != nil {
		return fail(err.Error(), "check oidc_token_file, organization_name, runner_pool_id, and the pool's policies on the server")
	}
	e.token, err = e.opts.Client.CheckToken(ctx, token)
	var api *protocol.APIError
	switch {
	case errors.As(err, &api) && api.Code == http.StatusUnauthorized:
		return fail("the server rejects "+what, "the token is wrong or was revoked: create a new token for the pool, and run configure or replace PULUMI_AGENT_TOKEN")
	case errors.As(err, &api) && api.Code == http.StatusForbidden:
		return fail("the server denies access to "+what+": "+api.Message, "use an agent pool's token; if this is one, its pool may have been deleted")
	case err != nil:
		return fail(err.Error(), "try again; if the error remains, check the server's log")
	case !e.token.Proven:
		return warn("not checked: the server gives the same response with and without "+what, "check service_url; the agent's first poll will show whether the token is valid")
	case e.token.PoolID == "":
		return ok("the server accepts " + what)
	case c.RunnerPoolID != "" && c.RunnerPoolID != e.token.PoolID:
		return warn(fmt.Sprintf("%s belongs to the pool %s, and runner_pool_id names %s", what, e.pool(), c.RunnerPoolID), "correct runner_pool_id, or use a token of that pool")
	}
	return ok("the server accepts " + what + "; its pool is " + e.pool())
}

func (e *examination) pool() string {
	if e.token.PoolName == "" {
		return e.token.PoolID
	}
	return fmt.Sprintf("%q (%s)", e.token.PoolName, e.token.PoolID)
}
