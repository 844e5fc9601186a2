package jobs

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies/evaluations"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/workflow"
)

const (
	maxHold = 50 * time.Second
	// idleRetry is the Retry-After value for an agent that polls without waiting.
	idleRetry = 10 * time.Second
)

// agentRoutes are the calls that agents make with their pool's token.
type agentRoutes struct {
	deployments *deployments.Service
	runnerDir   string
	externalURL string
	issued      func(token string)
}

// Register adds the routes for agents and runners. runnerDir is the directory of the runner binary.
func Register(rt *web.Router, s *deployments.Service, e *evaluations.Service, runnerDir, externalURL string) {
	(&agentRoutes{s, runnerDir, externalURL, rt.Issued}).register(rt)
	(&jobRoutes{s, e}).register(rt)
}

func (a *agentRoutes) register(rt *web.Router) {
	rt.Poll(http.MethodGet, "/api/deployments/poll", a.poll)
	rt.Authed(http.MethodGet, "/api/deployments/executor",
		[]identity.Kind{identity.KindJob, identity.KindRunner, identity.KindPool}, a.executor)
	rt.Authed(http.MethodGet, "/api/deployments/{deploymentID}/status", web.Agents, a.status)
	rt.Authed(http.MethodGet, "/api/agent-pools/self/load", web.Agents, a.load)
	a.registerStock(rt)
}

// poll has a small frame; see [deployments.Service.Poll].
func (a *agentRoutes) poll(w http.ResponseWriter, r *http.Request) error {
	poll, err := readPoll(r)
	if err != nil {
		return err
	}
	w.Header().Set(protocol.HeaderAgentPool, poll.Agent.PoolID)
	if poll.Wait > 0 {
		w.Header().Set(protocol.HeaderPreferenceApplied, "wait")
	}
	answer, err := a.deployments.Poll(r.Context(), poll)
	if err != nil {
		w.Header().Del(protocol.HeaderPreferenceApplied)
		return err
	}
	return a.answerPoll(w, r, poll, answer)
}

func (a *agentRoutes) answerPoll(w http.ResponseWriter, r *http.Request, poll *deployments.Poll, answer deployments.Answer) error {
	if answer.Drained {
		w.Header().Set(protocol.HeaderAgentDrained, "true")
	}
	claim := answer.Claim
	if claim == nil {
		if poll.Wait <= 0 {
			web.RetryAfter(w, idleRetry)
		}
		return web.Done(w, nil)
	}
	a.issued(claim.Token)
	id := cmp.Or(claim.Job.DeploymentID, claim.Job.ID) // only a deployment has another id than its job
	return web.WriteJSON(w, r, http.StatusOK, protocol.PollResponse{
		JobID: claim.Job.ID, JobToken: claim.Token, OIDCToken: claim.IdentityToken, RunID: id,
		TypeSpecificID: id, DeploymentID: claim.Job.DeploymentID, WorkflowType: claim.Type, Epoch: claim.Job.Epoch,
	})
}

// loadBody is the load of a pool. All members are integers, so that autoscalers can read them.
type loadBody struct {
	Queued            int64 `json:"queued"`
	Claimable         int64 `json:"claimable"`
	OldestWaitSeconds int64 `json:"oldestWaitSeconds"`
	Running           int64 `json:"running"`
	BusySlots         int64 `json:"busySlots"`
	IdleSlots         int64 `json:"idleSlots"`
	Agents            int64 `json:"agents"`
}

func (a *agentRoutes) load(w http.ResponseWriter, r *http.Request) error {
	p := web.Principal(r)
	l, err := a.deployments.PoolLoad(r.Context(), p.Org.ID, p.PoolID, typesOf(r)...)
	return web.Answer(w, r, loadBody{
		Queued: l.Queued, Claimable: l.Claimable, OldestWaitSeconds: int64(l.OldestWait / time.Second),
		Running: l.Running, BusySlots: l.BusySlots, IdleSlots: l.IdleSlots, Agents: l.Agents,
	}, err)
}

// readPoll returns an agent's description of itself, which it reads from the headers. Agents that
// use only the stock API send no description. The server distinguishes such agents by address and
// program.
func readPoll(r *http.Request) (*deployments.Poll, error) {
	h := func(name string) string { return request.PlainText(r.Header.Get(name)) }
	ip := web.Address(r)
	p := deployments.Poll{
		Agent: pools.Sighting{
			AgentID: h(protocol.HeaderAgentID), SessionID: h(protocol.HeaderAgentSession), Hostname: h(protocol.HeaderAgentHostname),
			IP: ip, PID: h(protocol.HeaderAgentPID), Platform: h(protocol.HeaderAgentPlatform), Version: h(protocol.HeaderAgentVersion),
		},
		PollID: h(protocol.HeaderPollID), FreeSlots: 1,
	}
	p.Stock = p.Agent.SessionID == ""
	p.Agent.Slots = 1
	if p.Agent.AgentID == "" {
		sum := sha256.Sum256([]byte(ip + "\n" + r.UserAgent()))
		p.Agent.AgentID = "stock-" + hex.EncodeToString(sum[:8])
	}
	p.Agent.Version = cmp.Or(p.Agent.Version, request.PlainText(r.UserAgent()))
	p.Agent.Hostname = cmp.Or(p.Agent.Hostname, ip)
	for _, f := range []struct {
		name string
		set  func(int)
	}{
		{protocol.HeaderAgentSlots, func(n int) { p.FreeSlots = n }},
		{protocol.HeaderAgentCapacity, func(n int) { p.Agent.Slots = int64(n) }},
		{protocol.HeaderAgentInterval, func(n int) { p.Agent.Interval = time.Duration(n) * time.Second }},
	} {
		v := r.Header.Get(f.name)
		if v == "" {
			continue
		}
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 || n > 86400 {
			return nil, fault.Invalid("the header %s must be an integer between 0 and 86400", f.name)
		}
		f.set(n)
	}
	if told := r.Header.Get(protocol.HeaderAgentDrained); told != "" {
		known := told == "true"
		p.KnowsDrained = &known
	}
	p.Wait = preferredWait(r.Header.Values(protocol.HeaderPrefer))
	p.Types = typesOf(r)
	return p.From(web.Principal(r)), nil
}

// typesOf returns the workflow types that the query of a request names.
func typesOf(r *http.Request) (types []workflow.Type) {
	for _, v := range r.URL.Query()["type"] {
		for name := range strings.SplitSeq(v, ",") {
			types = append(types, workflow.Type(strings.TrimSpace(name)))
		}
	}
	return types
}

// preferredWait parses "Prefer: wait=N", in seconds. It ignores unknown preferences, as RFC 7240
// requires.
func preferredWait(values []string) time.Duration {
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			name, v, _ := strings.Cut(strings.TrimSpace(part), "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			n, err := strconv.Atoi(strings.Trim(strings.TrimSpace(v), `"`))
			if err == nil && n > 0 {
				return min(time.Duration(min(n, 3600))*time.Second, maxHold)
			}
		}
	}
	return 0
}

func (a *agentRoutes) status(w http.ResponseWriter, r *http.Request) error {
	// The agent's self-test reads these headers. It sends an id that no deployment has.
	w.Header().Set(protocol.HeaderAgentPool, web.Principal(r).PoolID)
	w.Header().Set(protocol.HeaderExternalURL, a.externalURL)
	if r.URL.Path == protocol.StatusProbe {
		pool, err := a.deployments.PoolOf(r.Context(), web.Principal(r))
		if err != nil {
			return err
		}
		w.Header().Set(protocol.HeaderPoolName, url.PathEscape(pool.Name))
	}
	status, err := a.deployments.StatusForAgent(r.Context(), web.Principal(r), web.Param(r, "deploymentID"))
	return web.Answer(w, r, status, err)
}
