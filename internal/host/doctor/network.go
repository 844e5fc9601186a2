package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"workflowagent/internal/checkup"
	"workflowagent/internal/protocol"
	"workflowagent/internal/reach"
)

// checkProxy traces the complete connection to the server. Each of the following checks reports a
// part of this trace.
func (e *examination) checkProxy(ctx context.Context) checkup.Result {
	c := e.opts.Config
	if e.opts.Offline {
		return offline()
	}
	ca, err := c.CACertificates()
	if err != nil {
		return checkup.Fail("ca_certificate_file: "+err.Error(), "correct ca_certificate_file")
	}
	e.way = reach.Try(ctx, c.ServiceURL+protocol.StatusProbe, reach.Options{CAPEM: ca, Proxy: e.opts.Proxy, UserAgent: e.opts.UserAgent})
	switch {
	case e.way.Failed == reach.StageURL:
		return checkup.Fail(e.way.Problem, e.way.Advice)
	case e.way.Proxy != "":
		return checkup.OK(c.ServiceURL + " is reached through the proxy " + e.way.Proxy)
	}
	return checkup.OK(c.ServiceURL + " is reached directly")
}

func (e *examination) checkDNS(context.Context) checkup.Result { return checkup.DNS(e.way) }

func (e *examination) checkTCP(context.Context) checkup.Result { return checkup.TCP(e.way) }

func (e *examination) checkTLS(context.Context) checkup.Result {
	if strings.HasPrefix(e.way.URL, "http:") {
		return checkup.Skip("service_url is plain http, so nothing is encrypted")
	}
	return checkup.TLS(e.way)
}

func (e *examination) checkServer(context.Context) checkup.Result {
	if e.way.Failed == reach.StageTLS {
		return checkup.Skip("not checked, because of: TLS")
	}
	return judge(e.way)
}

// judge checks whether the response looks like the response of a control plane.
func judge(t *reach.Trace) checkup.Result {
	switch {
	case t.Failed != "":
		return checkup.Fail(t.Problem, t.Advice)
	case t.Location != "":
		return checkup.Fail(fmt.Sprintf("%s answers with a redirect to %s", t.URL, t.Location), "set service_url to the URL of the control plane's API; the token does not follow redirects")
	case t.Code == http.StatusUnauthorized, t.Code == http.StatusForbidden:
		return checkup.OK(fmt.Sprintf("answers in %d ms", t.Took.Milliseconds()))
	case t.Code >= 500:
		return checkup.Fail(fmt.Sprintf("%s answers with status %d", t.URL, t.Code), "check the server's log; the agent keeps trying")
	}
	return checkup.Warn(fmt.Sprintf("%s answers with status %d (%s), unlike a control plane that requires a token", t.URL, t.Code, t.ContentType),
		"check that service_url is the base URL of the control plane's API, such as https://api.pulumi.com")
}

func (e *examination) checkClock(context.Context) checkup.Result { return checkup.Clock(e.way) }

func (e *examination) checkToken(ctx context.Context) checkup.Result {
	c := e.opts.Config
	switch {
	case e.opts.Client == nil:
		return checkup.Skip("the server's URL is invalid")
	case e.opts.Token == nil:
		return checkup.Fail("no token is configured", "run configure, or set token or PULUMI_AGENT_TOKEN")
	}
	what := "the token"
	if c.UsesOIDC() {
		what = "the token exchanged for oidc_token_file"
	}
	token, err := e.opts.Token(ctx)
	if err != nil {
		return checkup.Fail(err.Error(), "check oidc_token_file, organization_name, runner_pool_id, and the pool's policies on the server")
	}
	e.token, err = e.opts.Client.CheckToken(ctx, token)
	var api *protocol.APIError
	switch {
	case errors.As(err, &api) && api.Code == http.StatusUnauthorized:
		return checkup.Fail("the server rejects "+what, "the token is wrong or was revoked: create a new token for the pool, and run configure or replace PULUMI_AGENT_TOKEN")
	case errors.As(err, &api) && api.Code == http.StatusForbidden:
		return checkup.Fail("the server denies access to "+what+": "+api.Message, "use an agent pool's token; if this is one, its pool may have been deleted")
	case err != nil:
		return checkup.Fail(err.Error(), "try again; if the error remains, check the server's log")
	case !e.token.Proven:
		return checkup.Warn("not checked: the server gives the same response with and without "+what, "check service_url; the agent's first poll will show whether the token is valid")
	case e.token.PoolID == "":
		return checkup.OK("the server accepts " + what)
	case c.RunnerPoolID != "" && c.RunnerPoolID != e.token.PoolID:
		return checkup.Warn(fmt.Sprintf("%s belongs to the pool %s, and runner_pool_id names %s", what, e.pool(), c.RunnerPoolID), "correct runner_pool_id, or use a token of that pool")
	}
	return checkup.OK("the server accepts " + what + "; its pool is " + e.pool())
}

func (e *examination) pool() string {
	if e.token.PoolName == "" {
		return e.token.PoolID
	}
	return fmt.Sprintf("%q (%s)", e.token.PoolName, e.token.PoolID)
}
