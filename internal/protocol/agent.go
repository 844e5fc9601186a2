package protocol

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// pollGrace is the time that a poll can take in addition to the requested hold.
const pollGrace = 10 * time.Second

// maxID limits the length of an id from the server, in bytes, because ids are shown to users.
const maxID = 256

// Poll requests work. It makes one attempt. A caller that repeats a failed poll must send the same
// PollID: if the response with a claim was lost, the server then repeats the claim, so no job is
// lost or claimed twice. While the circuit breaker is open, Poll returns [ErrCircuitOpen] without
// sending a request.
func (c *Client) Poll(ctx context.Context, token string, p PollRequest) (PollResult, error) {
	r := call{
		method:  http.MethodGet,
		path:    "/api/deployments/poll",
		query:   url.Values{},
		token:   token,
		header:  pollHeader(p),
		limit:   maxSmallBody,
		guarded: true,
		timeout: max(c.timeout, p.Wait+pollGrace),
	}
	for _, t := range p.Types {
		r.query.Add("type", string(t))
	}
	r.own = func(a answer) bool {
		var job PollResponse
		return heldBy(a.header.Values(HeaderPreferenceApplied)) ||
			a.decode(r, &job) == nil && job.JobID != "" && job.JobToken != ""
	}
	a, err := c.send(ctx, r)
	if err != nil {
		return PollResult{}, err
	}
	result := PollResult{
		Held:       p.Wait > 0 && heldBy(a.header.Values(HeaderPreferenceApplied)),
		RetryAfter: parseRetryAfter(a.header.Get("Retry-After"), time.Now()),
		Drained:    a.header.Get(HeaderAgentDrained) == "true",
	}
	if a.status == http.StatusNoContent || len(a.body) == 0 {
		return result, nil
	}
	var job PollResponse
	if err := a.decode(r, &job); err != nil {
		return PollResult{}, err
	}
	if job.JobID == "" || job.JobToken == "" {
		return PollResult{}, errors.New("the server's response to the poll has a job without an id or a token")
	}
	if pool := a.header.Get(HeaderAgentPool); pool != "" {
		job.PoolID = termtext.OneLine(pool, maxField)
	}
	job.DeploymentID = cmp.Or(job.DeploymentID, job.TypeSpecificID)
	if strings.ContainsFunc(job.JobToken, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return PollResult{}, errors.New("the server's response to the poll has a job token that is invalid in a header")
	}
	for _, id := range []string{job.JobID, job.DeploymentID, job.RunID, string(job.WorkflowType)} {
		if termtext.OneLine(id, maxID) != id {
			return PollResult{}, errors.New("the server's response to the poll has an id that cannot be shown: it is too long or not plain text")
		}
	}
	result.Job = &job
	return result, nil
}

func pollHeader(p PollRequest) http.Header {
	h := http.Header{}
	set := func(key, value string) {
		if value != "" {
			h.Set(key, termtext.OneLine(value, maxMessage))
		}
	}
	set(HeaderAgentID, p.AgentID)
	set(HeaderAgentSession, p.SessionID)
	set(HeaderAgentHostname, p.Hostname)
	set(HeaderAgentVersion, p.Version)
	set(HeaderAgentPlatform, p.Platform)
	set(HeaderPollID, p.PollID)
	set(HeaderAgentSlots, strconv.Itoa(p.FreeSlots))
	set(HeaderAgentCapacity, strconv.Itoa(p.Capacity))
	set(HeaderAgentDrained, strconv.FormatBool(p.Drained))
	if p.PID != 0 {
		set(HeaderAgentPID, strconv.Itoa(p.PID))
	}
	if p.Interval > 0 {
		set(HeaderAgentInterval, strconv.FormatInt(ceilSeconds(p.Interval), 10))
	}
	if p.Wait > 0 {
		set(HeaderPrefer, "wait="+strconv.FormatInt(ceilSeconds(p.Wait), 10))
	}
	return h
}

func ceilSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// heldBy reports whether a Preference-Applied header names wait, with or without a value.
func heldBy(values []string) bool {
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			name, _, _ := strings.Cut(part, "=")
			if strings.EqualFold(strings.TrimSpace(name), "wait") {
				return true
			}
		}
	}
	return false
}

// Status returns the public status of a deployment. It retries as configured by [Retry].
func (c *Client) Status(ctx context.Context, token, deploymentID string) (workflow.Status, error) {
	r := call{
		method:  http.MethodGet,
		path:    "/api/deployments/" + url.PathEscape(deploymentID) + "/status",
		token:   token,
		limit:   maxSmallBody,
		retry:   true,
		guarded: true,
	}
	r.own = func(a answer) bool {
		var status workflow.Status
		return a.decode(r, &status) == nil && (status.Final() ||
			status == workflow.StatusNotStarted || status == workflow.StatusAccepted || status == workflow.StatusRunning)
	}
	a, err := c.send(ctx, r)
	if err != nil {
		return "", err
	}
	var status workflow.Status
	if err := a.decode(r, &status); err != nil {
		return "", err
	}
	return status, nil
}

// StatusProbe is a path that only agents may call, with an ID that no deployment has. A call to it
// changes and claims nothing.
const StatusProbe = "/api/deployments/00000000-0000-0000-0000-000000000000/status"

// maxField limits the length of a value from a header, in bytes.
const maxField = 2000

// TokenCheck is the result of [Client.CheckToken].
type TokenCheck struct {
	// Proven is true if the server accepts the token and rejects calls without one.
	Proven bool
	// PoolID is the ID of the token's pool, and ExternalURL is the backend URL for the pool's jobs.
	// Each is "" if the server omits it.
	PoolID      string
	PoolName    string // name of that pool
	ExternalURL string
}

// CheckToken checks a pool's token without claiming work or appearing as an agent: it requests the
// status of a deployment that does not exist, with and without the token. The error is an
// [APIError] if the server rejects the token. CheckToken bypasses the circuit breaker and does not
// retry.
func (c *Client) CheckToken(ctx context.Context, token string) (TokenCheck, error) {
	r := call{method: http.MethodGet, path: StatusProbe, token: token, limit: maxSmallBody}
	with, err := c.deliver(ctx, r)
	if err != nil && StatusCode(err) != http.StatusNotFound {
		return TokenCheck{}, err
	}
	check := TokenCheck{
		PoolID:      termtext.OneLine(with.header.Get(HeaderAgentPool), maxField),
		ExternalURL: termtext.OneLine(with.header.Get(HeaderExternalURL), maxField),
	}
	if name, err := url.PathUnescape(with.header.Get(HeaderPoolName)); err == nil {
		check.PoolName = termtext.OneLine(name, maxField)
	}
	r.token = ""
	_, err = c.deliver(ctx, r)
	switch StatusCode(err) {
	case http.StatusUnauthorized, http.StatusForbidden:
		check.Proven = true
		return check, nil
	case http.StatusNotFound:
		return check, nil
	}
	return check, err
}

// RespectsSlots reports whether the server assigns no job to an agent without free slots. It makes
// the same request as [Client.CheckToken]: a server with this extension names the token's pool.
func (c *Client) RespectsSlots(ctx context.Context, token string) (bool, error) {
	a, err := c.deliver(ctx, call{method: http.MethodGet, path: StatusProbe, token: token, limit: maxSmallBody})
	if err != nil && (StatusCode(err) != http.StatusNotFound || !Permanent(err)) {
		return false, err
	}
	return a.header.Get(HeaderAgentPool) != "", nil
}

// Constants for a token exchange (RFC 8693), as documented by Pulumi Cloud, and the client's limits.
const (
	grantTokenExchange  = "urn:ietf:params:oauth:grant-type:token-exchange"
	typeIDToken         = "urn:ietf:params:oauth:token-type:id_token"
	typeRunnerToken     = "urn:pulumi:token-type:access_token:runner"
	audienceOrg         = "urn:pulumi:org:"
	scopeRunner         = "runner:"
	maxTokenLife        = 366 * 24 * time.Hour
	maxAccessToken      = 8 << 10 // bytes
	mediaForm           = "application/x-www-form-urlencoded"
	defaultTokenLife    = 2 * time.Hour // assumed if the response has no lifetime; documented by Pulumi Cloud
	exchangePath        = "/api/oauth/token"
	headerContentType   = "Content-Type"
	parameterExpiration = "expiration"
)

// TokenExchange is a request to exchange an OpenID Connect issuer's token for an agent pool's
// token.
type TokenExchange struct {
	Organization string
	PoolID       string
	SubjectToken string        // token from the issuer
	Life         time.Duration // requested lifetime; 0 leaves it to the server
}

// PoolToken is an agent pool's token and its lifetime.
type PoolToken struct {
	Value string
	Life  time.Duration // counted from the response; always positive
}

// ExchangeToken exchanges an issuer's token for a pool's token. It makes one attempt and bypasses
// the circuit breaker. The request carries no other token, and no error contains a token.
func (c *Client) ExchangeToken(ctx context.Context, e TokenExchange) (PoolToken, error) {
	form := url.Values{
		"grant_type":           {grantTokenExchange},
		"audience":             {audienceOrg + e.Organization},
		"subject_token_type":   {typeIDToken},
		"subject_token":        {e.SubjectToken},
		"requested_token_type": {typeRunnerToken},
		"scope":                {scopeRunner + e.PoolID},
	}
	if e.Life > 0 {
		form.Set(parameterExpiration, strconv.FormatInt(ceilSeconds(e.Life), 10))
	}
	r := call{
		method: http.MethodPost,
		path:   exchangePath,
		header: http.Header{headerContentType: {mediaForm}},
		body:   []byte(form.Encode()),
		secret: e.SubjectToken,
		limit:  maxSmallBody,
	}
	a, err := c.send(ctx, r)
	if err != nil {
		return PoolToken{}, err
	}
	var got struct {
		AccessToken string  `json:"access_token"`
		ExpiresIn   float64 `json:"expires_in"` // seconds
	}
	if err := a.decode(r, &got); err != nil {
		return PoolToken{}, err
	}
	switch {
	case got.AccessToken == "":
		return PoolToken{}, errors.New("the server's response to the token exchange has no access_token")
	case len(got.AccessToken) > maxAccessToken || strings.ContainsFunc(got.AccessToken, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsGraphic(r) || r == ' ' }):
		return PoolToken{}, errors.New("the server's response to the token exchange has an invalid access_token")
	}
	token := PoolToken{Value: got.AccessToken, Life: defaultTokenLife}
	switch {
	case got.ExpiresIn >= maxTokenLife.Seconds():
		token.Life = maxTokenLife
	case got.ExpiresIn >= 1:
		token.Life = time.Duration(got.ExpiresIn * float64(time.Second))
	case e.Life > 0:
		token.Life = e.Life
	}
	return token, nil
}
