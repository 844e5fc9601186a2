package protocol

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// pollGrace is how much longer than the requested hold a poll may take.
const pollGrace = 10 * time.Second

// maxID limits the ids that a server gives, in bytes. They are shown to users.
const maxID = 256

// Poll requests work. It is sent once: a caller that repeats it after an error sends the same
// PollID, so that the server repeats a claim whose answer was lost and no job is lost or claimed
// twice. While the circuit breaker is open it returns [ErrCircuitOpen] without a request.
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
	}
	if a.status == http.StatusNoContent || len(a.body) == 0 {
		return result, nil
	}
	var job PollResponse
	if err := a.decode(r, &job); err != nil {
		return PollResult{}, err
	}
	if job.JobID == "" || job.JobToken == "" {
		return PollResult{}, errors.New("the server's answer to the poll names a job without id or token")
	}
	if pool := a.header.Get(HeaderAgentPool); pool != "" {
		job.PoolID = termtext.OneLine(pool, maxField)
	}
	if job.DeploymentID == "" {
		job.DeploymentID = job.TypeSpecificID
	}
	if strings.ContainsFunc(job.JobToken, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return PollResult{}, errors.New("the server's answer to the poll names a job with a token that fits into no header")
	}
	for _, id := range []string{job.JobID, job.DeploymentID, job.RunID, string(job.WorkflowType)} {
		if termtext.OneLine(id, maxID) != id {
			return PollResult{}, errors.New("the server's answer to the poll names a job by an id that cannot be shown: it is too long or not plain text")
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

// heldBy reports whether Preference-Applied names wait, with or without a value.
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

// Status returns the public status of a deployment, repeated as [Retry] configures.
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
