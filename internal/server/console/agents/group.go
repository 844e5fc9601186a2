package agents

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// group is a pool with its agents.
type group struct {
	pools.Summary
	Org    string
	Admin  bool
	Now    time.Time
	Agents []agentRow
	Others []view.Option // pools to which the queue can be moved
	Pulls  int64         // queued deployments of pull requests, which stay; read only if the queue can be moved
}

// agentRow is an agent with its work.
type agentRow struct {
	pools.Agent
	deployments.AgentWork
	Org, Path string
	// Newer is the version to which the agent can be updated; it can be empty.
	Newer string
}

// The states of agents.
const (
	stateOffline  = "offline"
	stateBusy     = "busy"
	stateDrained  = "drained"
	stateRefusing = "takes no jobs"
	stateFree     = "free"
)

// state is the state of the agent in words.
func (a agentRow) state() string {
	switch {
	case !a.Online:
		return stateOffline
	case a.Active > 0:
		return stateBusy
	case a.Drain != nil:
		return stateDrained
	case a.Slots == 0:
		return stateRefusing
	default:
		return stateFree
	}
}

// mark is the mark of the agent's state.
func (a agentRow) mark() string {
	return map[string]string{
		stateOffline: view.MarkNever, stateBusy: view.MarkRunning, stateDrained: view.MarkPaused, stateRefusing: view.MarkWarn, stateFree: view.MarkOK,
	}[a.state()]
}

// rest says what the agent does in addition to the first job that is shown.
func (a agentRow) rest() string {
	var parts []string
	if more := a.Active - 1; len(a.Running) > 0 && more > 0 {
		parts = append(parts, words.Number(more)+" more")
	}
	if !a.Online {
		parts = append(parts, "the agent is offline")
	}
	if a.Drain != nil {
		parts = append(parts, "drained by "+a.Drain.DrainedBy)
	} else if a.Online && a.Slots > 1 {
		parts = append(parts, fmt.Sprintf("%s of %s jobs", words.Number(a.Active), words.Number(a.Slots)))
	}
	return strings.Join(parts, ", ")
}

// version is the version of the agent, as it is shown.
func (a agentRow) version() string { return strings.TrimPrefix(a.Version, "v") }

// agentsOf returns the agents of a pool, those that are busy first and those that are offline last.
func (p *pages) agentsOf(v *page.Visit, pool store.AgentPool) ([]agentRow, error) {
	known, err := p.Pools.Get(v.Context(), v.Org.ID, pool.ID)
	if err != nil {
		return nil, err
	}
	work, err := p.Deployments.Work(v.Context(), v.Who, pool)
	if err != nil {
		return nil, err
	}
	list := make([]agentRow, len(known.Agents))
	for i, a := range known.Agents {
		list[i] = agentRow{Agent: a, AgentWork: work[a.AgentID], Org: v.Org.Name, Path: poolPath(v.Org.Name, pool.ID, "agents", a.AgentID)}
		if pools.Older(a.Version, p.Server.Version) {
			list[i].Newer = p.Server.Version
		}
	}
	slices.SortStableFunc(list, func(a, b agentRow) int { return cmp.Compare(a.place(), b.place()) })
	return list, nil
}

// place orders agents: busy, free and offline.
func (a agentRow) place() int {
	switch a.state() {
	case stateBusy:
		return 0
	case stateOffline:
		return 2
	default:
		return 1
	}
}

// busy and free are the jobs that run on the online agents, and those that could run in addition.
func (g group) busy() int64 { return min(g.Active, g.Slots) }
func (g group) free() int64 { return g.Slots - g.busy() }

// share returns the busy part of the pool in percent.
func (g group) share() float64 {
	if g.Slots == 0 {
		return 0
	}
	return 100 * float64(g.busy()) / float64(g.Slots)
}

// capacity says what the pool can run.
func (g group) capacity() string {
	switch {
	case g.Online == 0:
		return "none online"
	case g.Slots == 0:
		return words.Number(g.Online) + " online, none takes jobs"
	default:
		return fmt.Sprintf("%s busy, %s free", words.Number(g.busy()), words.Number(g.free()))
	}
}

// stuck reports whether no agent of the pool takes deployments.
func (g group) stuck() bool {
	return g.Slots == 0 && (g.Online > 0 || g.Summary.Agents > 0 || g.Queued > 0)
}

// badge says what is wrong with the pool, or "".
func (g group) badge() string {
	switch {
	case !g.stuck():
		return ""
	case g.Online == 0:
		return "no agent online"
	default:
		return "takes no jobs"
	}
}

// fresh reports whether no agent of the pool has ever been seen.
func (g group) fresh() bool { return g.Summary.Agents == 0 && g.AgentPool.LastSeenAt.IsZero() }

// why says why no agent takes deployments, and what to do; "" if one does.
func (g group) why() (head, text string) {
	if g.Slots > 0 {
		return "", ""
	}
	switch {
	case g.Online > 0 && g.Drained == g.Online:
		head, text = "All online agents are drained.", "Resume one, or start another agent"
	case g.Online > 0:
		head, text = "The online agents take no jobs.", "They stop, or cannot start jobs, for example because Docker is not available or a disk is full. Check them on their hosts with customer-managed-workflow-agent doctor"
	case g.fresh():
		head, text = "No agent has connected yet.", "Install one"
	default:
		head, text = g.lastSeen(), "Start the agent"
	}
	if g.movable() > 0 {
		text += ", or move the queue to another pool"
	}
	if g.Queued > 0 {
		text = waits(g.Queued) + " " + text
	}
	return head, text + "."
}

// waitsFor reports whether the queue waits for an agent, and the visitor could move it.
func (g group) waitsFor() bool { return g.Slots == 0 && g.Queued > 0 && g.Admin && len(g.Others) > 0 }

// movable is the number of deployments that the visitor can move to another pool, because no agent takes them.
func (g group) movable() int64 {
	if !g.waitsFor() {
		return 0
	}
	return max(g.Queued-g.Pulls, 0)
}

// countPulls completes what the visitor can move.
func (p *pages) countPulls(v *page.Visit, g *group) (err error) {
	if g.waitsFor() {
		g.Pulls, err = p.Pools.QueuedPulls(v.Context(), v.Who, g.AgentPool)
	}
	return err
}

// lastSeen says when which agent of a pool was seen last.
func (g group) lastSeen() string {
	name, at := "An agent", g.AgentPool.LastSeenAt
	for _, a := range g.Agents {
		if !a.LastSeenAt.Before(at) || name == "An agent" {
			name, at = a.Hostname, a.LastSeenAt
		}
	}
	return fmt.Sprintf("%s was last seen %s ago.", name, words.Age(g.Now.Sub(at)))
}

func waits(n int64) string {
	if n == 1 {
		return "1 deployment waits."
	}
	return words.Number(n) + " deployments wait."
}

// staying says how many deployments do not move with the queue.
func staying(pulls int64) string {
	if pulls == 1 {
		return "1 deployment of a pull request stays."
	}
	return words.Number(pulls) + " deployments of pull requests stay."
}

// since is the time at which a job was handed out or started.
func since(e store.QueueEntry) time.Time {
	if e.StartedAt.IsZero() {
		return e.ClaimedAt
	}
	return e.StartedAt
}
