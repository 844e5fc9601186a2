package deployments

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// Reasons of a [joblog.Wait]. The numbers must not change, because continuation tokens contain
// them.
const (
	waitPool int64 = iota + 1
	waitOrgPaused
	waitStackPaused
	waitLost
	waitEarlier
	waitAgent
	waitCap
	waitBusy
)

// waitWords are the reasons in the form that the API shows.
var waitWords = map[int64]string{
	waitPool: "no-pool", waitOrgPaused: "organization-paused", waitStackPaused: "stack-paused", waitLost: "lost-deployment",
	waitEarlier: "earlier-deployment", waitAgent: "no-agent", waitCap: "limit", waitBusy: "busy",
}

// claimTime is the time in which a free agent is expected to claim a job. After that time, the job
// is reported as waiting.
const claimTime = 3 * time.Second

// queued is a queued job, with the data needed to explain why it waits.
type queued struct {
	s   *Service
	tx  *store.Tx
	d   store.Deployment
	job store.Job
	org string // name
}

// whyQueued returns the reason why a queued deployment does not start, with the command that
// resolves it.
func (s *Service) whyQueued(tx *store.Tx, d store.Deployment, job store.Job) (joblog.Wait, error) {
	org, err := tx.Organization(d.OrgID)
	if err != nil {
		return joblog.Wait{}, err
	}
	q := queued{s, tx, d, job, org.Name}
	for _, explain := range []func() (joblog.Wait, error){q.pausedOrBlocked, q.behindAnother, q.shortOfAgents} {
		if w, err := explain(); err != nil || w.Reason != 0 {
			return w, err
		}
	}
	return joblog.Wait{}, nil
}

func (q queued) stack() string { return q.org + "/" + q.d.Project + "/" + q.d.Stack }

func (q queued) curl(flags, path string) string {
	return fmt.Sprintf(`curl -H "Authorization: token $PULUMI_ACCESS_TOKEN" %s %s%s`, flags, q.s.opts.ExternalURL, path)
}

func (q queued) pausedOrBlocked() (joblog.Wait, error) {
	queue, err := q.tx.StackQueue(q.d.StackID)
	if err != nil {
		return joblog.Wait{}, err
	}
	org, err := q.tx.OrgQueue(q.d.OrgID)
	switch {
	case err != nil:
		return joblog.Wait{}, err
	case org.Paused:
		return joblog.Wait{Reason: waitOrgPaused, Text: "Deployments of the organization are paused.\nTo resume: " +
			q.curl("-X POST", "/api/orgs/"+q.org+"/deployments/resume")}, nil
	case queue.Paused:
		return joblog.Wait{Reason: waitStackPaused, Text: "Deployments of the stack are paused.\nTo resume: " +
			q.curl("-X POST", "/api/stacks/"+q.stack()+"/deployments/resume")}, nil
	case queue.BlockedBy != "":
		return joblog.Wait{Reason: waitLost, Text: "An earlier deployment of the stack was lost and its update may still be running; this one starts when that update has ended.\n" +
			"To end it: pulumi cancel --stack " + q.stack()}, nil
	}
	return joblog.Wait{}, nil
}

func (q queued) behindAnother() (joblog.Wait, error) {
	ahead, err := q.tx.ActiveJobsOfStack(q.d.StackID)
	if err == nil && len(ahead) == 0 {
		ahead, err = q.tx.QueuedJobsOfStack(q.d.StackID)
	}
	if err != nil || len(ahead) == 0 || ahead[0].Status == workflow.StatusNotStarted && ahead[0].Version >= q.job.Version {
		return joblog.Wait{}, err
	}
	first := ahead[0]
	progress, cause := "running", ""
	if first.Status == workflow.StatusNotStarted {
		w, err := queued{q.s, q.tx, q.d, first, q.org}.shortOfAgents()
		if err != nil {
			return joblog.Wait{}, err
		}
		progress = "queued"
		if w.Text != "" {
			cause = fmt.Sprintf("\nDeployment #%d waits: %s", first.Version, w.Text)
		}
	}
	return joblog.Wait{Reason: waitEarlier, Text: fmt.Sprintf("Waiting for deployment #%d of the stack, which is %s.%s\nTo cancel deployment #%[1]d: pulumi deployment cancel %[4]s --stack %[5]s",
		first.Version, progress, cause, first.DeploymentID, q.stack())}, nil
}

// shortOfAgents returns the reason for waiting if a job has no pool, or if its pool has no free
// agent.
func (q queued) shortOfAgents() (joblog.Wait, error) {
	pool, err := q.tx.Pool(q.d.OrgID, q.job.PoolID)
	if errors.Is(err, store.ErrNotFound) {
		return q.withoutPool()
	}
	if err != nil {
		return joblog.Wait{}, err
	}
	agents, err := q.tx.Agents(pool.ID)
	if err != nil {
		return joblog.Wait{}, err
	}
	now := q.tx.Now()
	if !slices.ContainsFunc(agents, func(a store.PoolAgent) bool { return pools.Online(a, now) }) {
		return joblog.Wait{Reason: waitAgent, Text: fmt.Sprintf("No agent of the pool %q is connected.\nTo start one, on its host: customer-managed-workflow-agent run", pool.Name)}, nil
	}
	if now.Sub(q.job.QueuedAt) < claimTime {
		return joblog.Wait{}, nil
	}
	active, err := q.tx.CountActiveJobs(q.d.OrgID)
	if err != nil {
		return joblog.Wait{}, err
	}
	if active >= q.s.opts.Cap {
		return joblog.Wait{Reason: waitCap, Text: fmt.Sprintf("The organization has reached its limit of %d active deployments; this one starts when one of them has ended.", active)}, nil
	}
	return joblog.Wait{Reason: waitBusy, Text: fmt.Sprintf("All agents of the pool %q are busy; the deployment starts when one is free.\nTo run more concurrently: start another agent, or raise max_concurrent_jobs.", pool.Name)}, nil
}

func (q queued) withoutPool() (joblog.Wait, error) {
	list, err := q.tx.Pools(q.d.OrgID)
	if err != nil {
		return joblog.Wait{}, err
	}
	if len(list) == 0 {
		return joblog.Wait{Reason: waitPool, Text: "No agent pool exists in the organization.\nTo create one, which becomes its default: " +
			q.curl(`-d '{"name":"default"}'`, "/api/orgs/"+q.org+"/agent-pools")}, nil
	}
	described, err := q.describe(list)
	if err != nil {
		return joblog.Wait{}, err
	}
	return joblog.Wait{Reason: waitPool, Text: "No agent pool is chosen for the deployment, and the organization has no default pool.\n" +
		"The organization's pools: " + described + "\n" +
		"To choose one for the stack: pulumi deployment settings edit --runner-pool " + list[0].ID + " --stack " + q.stack() +
		"\nTo choose the default: " + q.curl(`-X PATCH -d '{"setDefaultAgentPoolID":"`+list[0].ID+`"}'`, "/api/orgs/"+q.org)}, nil
}

// shownPools is the maximum number of pools that a reason for waiting lists.
const shownPools = 10

// describe returns the names, ids and numbers of connected agents of pools.
func (q queued) describe(list []store.AgentPool) (string, error) {
	states, err := q.poolsOf(list)
	if err != nil {
		return "", err
	}
	var out []string
	for _, p := range states {
		out = append(out, fmt.Sprintf("%q (%s, connected agents: %d)", p.Name, p.ID, p.Connected))
	}
	if more := len(list) - len(states); more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, ", "), nil
}

// Waiting describes why a queued deployment does not start. Pools and Agents are empty if the queue
// itself holds the deployment back, because no agent can take it then.
type Waiting struct {
	Reason string
	Pools  []WaitingPool  // at most shownPools
	Agents []WaitingAgent // of the deployment's pool, at most shownAgents, connected agents first
}

// WaitingPool is a pool that could take a queued deployment.
type WaitingPool struct {
	ID, Name          string
	Agents, Connected int
}

// WaitingAgent is an agent that has not taken a queued deployment.
type WaitingAgent struct {
	ID, Hostname string
	Connected    bool
	Running      int64 // deployments
	Why          string
}

// shownAgents is the maximum number of agents in [Waiting].
const shownAgents = 10

// considered returns a reason for waiting with the pools and agents to which it applies.
func (q queued) considered(reason int64) (*Waiting, error) {
	w := &Waiting{Reason: waitWords[reason]}
	switch reason {
	case waitPool:
		list, err := q.tx.Pools(q.d.OrgID)
		if err != nil {
			return nil, err
		}
		w.Pools, err = q.poolsOf(list)
		return w, err
	case waitAgent, waitBusy:
		pool, err := q.tx.Pool(q.d.OrgID, q.job.PoolID)
		if err != nil {
			return nil, err
		}
		if w.Pools, err = q.poolsOf([]store.AgentPool{pool}); err != nil {
			return nil, err
		}
		w.Agents, err = q.agentsOf(pool)
		return w, err
	default:
		return w, nil
	}
}

// poolsOf returns the first pools of a list with the numbers of their agents.
func (q queued) poolsOf(list []store.AgentPool) ([]WaitingPool, error) {
	now := q.tx.Now()
	var out []WaitingPool
	for _, pool := range list[:min(len(list), shownPools)] {
		agents, err := q.tx.Agents(pool.ID)
		if err != nil {
			return nil, err
		}
		p := WaitingPool{ID: pool.ID, Name: pool.Name, Agents: len(agents)}
		for _, a := range agents {
			if pools.Online(a, now) {
				p.Connected++
			}
		}
		out = append(out, p)
	}
	return out, nil
}

func (q queued) agentsOf(pool store.AgentPool) ([]WaitingAgent, error) {
	agents, err := q.tx.Agents(pool.ID)
	if err != nil {
		return nil, err
	}
	running, err := q.tx.CountActiveJobsByAgent(pool)
	if err != nil {
		return nil, err
	}
	now := q.tx.Now()
	var connected, others []WaitingAgent
	for _, a := range agents {
		w := WaitingAgent{ID: a.AgentID, Hostname: a.Hostname, Connected: pools.Online(a, now), Running: running[a.AgentID]}
		switch {
		case !w.Connected:
			w.Why = "is not connected; was last seen at " + a.LastSeenAt.UTC().Format(time.RFC3339)
			others = append(others, w)
			continue
		case w.Running > 0:
			w.Why = fmt.Sprintf("requests no more deployments; running: %d", w.Running)
		default:
			w.Why = "requests no deployments, for example because it drains"
		}
		connected = append(connected, w)
	}
	out := append(connected, others...)
	return out[:min(len(out), shownAgents)], nil
}
