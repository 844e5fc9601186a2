package waiting

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/server/links"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// Explain returns the reason why a queued deployment does not start.
func (f Facts) Explain(dj store.DeploymentJob) Why {
	e := explanation{Facts: f, dj: dj, stack: f.Org.Name + "/" + dj.Project + "/" + dj.Stack}
	w, found := e.pausedOrBlocked()
	if !found {
		w, found = e.behindAnother()
	}
	if !found {
		w = e.first(dj.Job)
		if w.Reason != Group {
			w.Position = e.position()
		}
	}
	if w.Since.IsZero() {
		w.Since = dj.Job.QueuedAt
	}
	return w
}

type explanation struct {
	Facts
	dj    store.DeploymentJob
	stack string // org/project/stack
}

// path returns a path of the console below the organization.
func (e explanation) path(segments ...string) string {
	return links.Path(append([]string{e.Org.Name}, segments...)...)
}

func (e explanation) stackPath(segments ...string) string {
	return e.path(append([]string{e.dj.Project, e.dj.Stack}, segments...)...)
}

func (e explanation) curl(flags, path string) string {
	return fmt.Sprintf(`curl -H "Authorization: token $PULUMI_ACCESS_TOKEN" %s %s%s`, flags, e.URL, path)
}

// paused returns the sentence about a paused queue.
func paused(what, by string, at time.Time) string {
	text := "Deployments of the " + what + " are paused"
	if by != "" {
		text += " by " + by
	}
	if !at.IsZero() {
		text += " since " + words.Clock(at)
	}
	return text + "."
}

func (e explanation) pausedOrBlocked() (Why, bool) {
	queue := e.Stacks[e.dj.StackID]
	switch {
	case e.Stop.Paused:
		why := Why{
			Reason: OrgPaused, Text: paused("organization", e.Stop.PausedBy, e.Stop.PausedAt), Since: e.Stop.PausedAt,
			Hint:     "To resume: " + e.curl("-X POST", "/api/orgs/"+e.Org.Name+"/deployments/resume"),
			Blockers: []Blocker{{Kind: BlockerOrganization, ID: e.Org.ID, Text: e.Org.Name, Detail: "paused", Since: e.Stop.PausedAt, Path: e.path("-", "deployments")}},
			Action:   Action{"Resume all deployments", Post, e.path("-", "deployments", "resume")},
		}
		if e.Stop.PausedBy == recovery.By {
			why.Hint = "To release: " + e.curl("-X POST", "/api/orgs/"+e.Org.Name+"/restore/release")
			why.Action = Action{"Check and release", Open, e.path("-", "restore")}
		}
		return why, true
	case queue.Paused:
		return Why{
			Reason: StackPaused, Text: paused("stack", queue.PausedBy, queue.PausedAt), Since: queue.PausedAt,
			Hint:     "To resume: " + e.curl("-X POST", "/api/stacks/"+e.stack+"/deployments/resume"),
			Blockers: []Blocker{{Kind: BlockerStack, ID: e.dj.StackID, Text: e.stack, Detail: "paused", Since: queue.PausedAt, Path: e.stackPath("deployments")}},
			Action:   Action{"Resume the stack", Post, e.stackPath("resume")},
		}, true
	case queue.BlockedBy != "":
		return e.alsoBehindGroup(Why{
			Reason: Lost, Text: "An earlier deployment of the stack was lost and its update may still be running; this one starts when that update has ended.",
			Hint:     "To end it: pulumi cancel --stack " + e.stack,
			Blockers: []Blocker{{Kind: BlockerDeployment, ID: queue.BlockedBy, Text: "the lost deployment", Detail: "lost", Path: e.stackPath("deployments", queue.BlockedBy)}},
			Action:   Action{"Open the lost deployment", Open, e.stackPath("deployments", queue.BlockedBy)},
		}), true
	}
	return Why{}, false
}

func (e explanation) behindAnother() (Why, bool) {
	queue := e.Stacks[e.dj.StackID]
	if len(queue.First) == 0 {
		return Why{}, false
	}
	first := queue.First[0]
	waits := first.Status == workflow.StatusNotStarted
	if waits && first.Version >= e.dj.Version {
		return Why{}, false
	}
	w := Why{Reason: Earlier, Ahead: e.Before[e.dj.Job.ID], Action: Action{fmt.Sprintf("Open #%d", first.Version), Open, e.stackPath("deployments", fmt.Sprint(first.Version))}}
	b := Blocker{
		Kind: BlockerDeployment, ID: first.DeploymentID, Text: fmt.Sprintf("%s #%d", e.stack, first.Version),
		Path: e.stackPath("deployments", fmt.Sprint(first.Version)),
	}
	if waits {
		cause := e.first(store.Job{ID: first.JobID, PoolID: first.PoolID, QueuedAt: first.QueuedAt, Operation: first.Operation, ConcurrencyGroup: first.Group})
		w.Text = fmt.Sprintf("Waiting for deployment #%d of the stack, which is queued.", first.Version)
		if cause.Reason != Next {
			w.Text += fmt.Sprintf(" Deployment #%d waits: %s", first.Version, cause.Text)
			w.Hint, w.Blockers = cause.Hint+"\n", cause.Blockers
		}
		b.Detail, b.Since = "queued", first.QueuedAt
	} else {
		w.Ahead++
		b.Detail, b.Since = "running", latest(first.StartedAt, first.ClaimedAt)
		facts := []string{string(first.Operation)}
		if first.Requester != "" {
			facts[0] += " by " + first.Requester
		}
		facts = append(facts, "since "+words.Clock(b.Since))
		if queue.Usual > 0 {
			facts = append(facts, "usually "+words.Duration(queue.Usual))
		}
		w.Text = fmt.Sprintf("Waiting for deployment #%d of the stack, which is running (%s).", first.Version, strings.Join(facts, ", "))
	}
	w.Blockers = append([]Blocker{b}, w.Blockers...)
	w.Hint += fmt.Sprintf("To cancel deployment #%d: pulumi deployment cancel %s --stack %s", first.Version, first.DeploymentID, e.stack)
	if !waits {
		w = e.alsoBehindGroup(w)
	}
	return w, true
}

// first returns the reason for waiting of a job that is the first of its stack.
func (e explanation) first(job store.Job) Why {
	if w, held := e.behindGroup(job); held {
		return w
	}
	w := e.shortOfAgents(job)
	if w.Reason != Next {
		return w
	}
	if turn, waits := e.behindTurn(job); waits {
		return turn
	}
	return w
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (e explanation) poolPath(id string) string { return e.path("-", "pools", id) }

// shortOfAgents returns the reason for waiting of a job that could start if an agent were free.
func (e explanation) shortOfAgents(job store.Job) Why {
	pool, ok := e.Pools[job.PoolID]
	if !ok {
		return e.withoutPool()
	}
	quoted := fmt.Sprintf("%q", pool.Name)
	self := Blocker{Kind: BlockerPool, ID: pool.ID, Text: pool.Name, Path: e.poolPath(pool.ID)}
	open := Action{"Open pool " + pool.Name, Open, e.poolPath(pool.ID)}
	if pool.Online == 0 {
		text := "No agent of the pool " + quoted + " is connected"
		self.Detail = "no agent is connected"
		if self.Since = pool.AgentPool.LastSeenAt; !self.Since.IsZero() {
			self.Detail = "last seen at " + words.Clock(self.Since)
			text += "; the last one was seen at " + words.Clock(self.Since)
			if pool.Host != "" {
				text += " on " + pool.Host
			}
		}
		open.Label = "Start an agent"
		return Why{
			Reason: NoAgent, Text: text + ".", Hint: "To start an installed agent, on its host: customer-managed-workflow-agent service start",
			Blockers: []Blocker{self}, Action: open,
		}
	}
	if e.Now.Sub(job.QueuedAt) < e.Patience {
		return Why{Reason: Next, Text: "An agent of the pool " + quoted + " is about to claim the deployment.", Action: Action{}}
	}
	if e.Active >= e.Cap {
		return Why{
			Reason:   Limit,
			Text:     fmt.Sprintf("The organization has reached its limit of %d active deployments; this one starts when one of them has ended.", e.Active),
			Blockers: e.runners(""),
			Action:   Action{"Show the running deployments", Open, e.path("-", "deployments")},
		}
	}
	if pool.Slots > pool.Active {
		return Why{Reason: Next, Text: "The pool " + quoted + " has a free agent, which claims the deployment when it polls next. After the server was away, that takes some seconds.", Action: Action{}}
	}
	if pool.Drained == pool.Online {
		return Why{
			Reason: Drained, Text: "The connected agents of the pool " + quoted + " are drained: they get no deployments until an administrator resumes them.",
			Hint:     "To run the deployment: resume an agent in the console, or start another agent.",
			Blockers: []Blocker{self}, Action: open,
		}
	}
	if pool.Slots == 0 {
		text := "The connected agents of the pool " + quoted + " report that they cannot start deployments, for example because Docker is not available or their disk is full"
		if pool.Drained > 0 {
			text += ", or they are drained"
		}
		return Why{
			Reason: NotReady, Text: text + ".", Hint: "To find the cause, on the agent's host: customer-managed-workflow-agent doctor",
			Blockers: []Blocker{self}, Action: open,
		}
	}
	return Why{
		Reason:   Busy,
		Text:     "All agents of the pool " + quoted + " are busy; the deployment starts when one is free.",
		Hint:     "To run more concurrently: start another agent, or raise max_concurrent_jobs.",
		Blockers: append([]Blocker{self}, e.runners(pool.ID)...), Action: open,
	}
}

// shownBlockers is the maximum number of running deployments that an explanation lists.
const shownBlockers = 5

// runners returns the oldest running deployments of a pool.
func (e explanation) runners(poolID string) []Blocker {
	if e.Running == nil {
		return nil
	}
	return e.blockers(e.Running(poolID))
}

func (e explanation) blockers(list []store.QueueEntry) []Blocker {
	var out []Blocker
	for _, r := range list[:min(len(list), shownBlockers)] {
		out = append(out, Blocker{
			Kind: BlockerDeployment, ID: r.DeploymentID, Text: fmt.Sprintf("%s/%s/%s #%d", e.Org.Name, r.Project, r.Stack, r.Version),
			Detail: fmt.Sprintf("%s on %s", r.Operation, cmp.Or(r.AgentHostname, "an agent")), Since: latest(r.StartedAt, r.ClaimedAt),
			Path: e.path(r.Project, r.Stack, "deployments", fmt.Sprint(r.Version)),
		})
		if lost(r) {
			out[len(out)-1].Detail = "lost"
		}
	}
	return out
}

// shownPools is the maximum number of pools that a reason for waiting lists.
const shownPools = 10

func (e explanation) withoutPool() Why {
	if len(e.Order) == 0 {
		return Why{
			Reason: NoPool, Text: "No agent pool exists in the organization.",
			Hint:   "To create one, which becomes its default: " + e.curl(`-d '{"name":"default"}'`, "/api/orgs/"+e.Org.Name+"/agent-pools"),
			Action: Action{"Create a pool", Open, e.path("-", "pools")},
		}
	}
	var described []string
	for _, id := range e.Order[:min(len(e.Order), shownPools)] {
		p := e.Pools[id]
		described = append(described, fmt.Sprintf("%q (%s, connected agents: %d)", p.Name, id, p.Online))
	}
	if more := len(e.Order) - len(described); more > 0 {
		described = append(described, fmt.Sprintf("and %d more", more))
	}
	return Why{
		Reason: NoPool, Text: "No agent pool is chosen for the deployment, and the organization has no default pool.",
		Hint: "The organization's pools: " + strings.Join(described, ", ") + "\n" +
			"To choose one for the stack: pulumi deployment settings edit --runner-pool " + e.Order[0] + " --stack " + e.stack +
			"\nTo choose the default: " + e.curl(`-X PATCH -d '{"setDefaultAgentPoolID":"`+e.Order[0]+`"}'`, "/api/orgs/"+e.Org.Name),
		Action: Action{"Choose a pool", Open, e.path("-", "pools")},
	}
}

// position returns the place among the jobs that the pool may claim, or 0.
func (e explanation) position() (place int64) {
	groups := map[string]bool{}
	for _, q := range e.Claimable[e.dj.Job.PoolID] {
		behind, own := groups[q.ConcurrencyGroup], q.ID == e.dj.Job.ID
		if !behind {
			place++
		}
		switch {
		case own && behind:
			return 0
		case own:
			return place
		}
		groups[q.ConcurrencyGroup] = q.ConcurrencyGroup != ""
	}
	return 0
}
