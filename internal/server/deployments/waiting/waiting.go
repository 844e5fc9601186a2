// Package waiting contains the words about deployments: why one waits, how one ended and what to do
// next. API, log and console show the same sentences. The package reads nothing itself; package
// deployments collects the [Facts].
package waiting

import (
	"time"

	"workflowagent/internal/server/store"
)

// The reasons of a [Why], in the form that the API shows.
const (
	NoPool      = "no-pool"
	OrgPaused   = "organization-paused"
	StackPaused = "stack-paused"
	Lost        = "lost-deployment"
	Earlier     = "earlier-deployment"
	Group       = "concurrency-group"
	NoAgent     = "no-agent"
	Limit       = "limit"
	Busy        = "busy"
	Drained     = "drained"   // all connected agents are drained
	NotReady    = "not-ready" // no connected agent can start jobs
	Next        = "next"      // it is claimable, and an agent is expected to claim it shortly
)

// numbers are the numbers of the reasons. They must not change, because continuation tokens of logs
// contain them.
var numbers = map[string]int64{
	NoPool: 1, OrgPaused: 2, StackPaused: 3, Lost: 4, Earlier: 5, NoAgent: 6, Limit: 7, Busy: 8, Drained: 9, NotReady: 10, Group: 11,
}

// Why is the reason why a deployment waits, as console and API show it.
type Why struct {
	Reason string `json:"reason"`
	// Text explains the reason in one or more full sentences.
	Text string `json:"text"`
	// Hint names commands that resolve the reason, one line per command; it can be empty.
	Hint string `json:"-"`
	// Since is the time since which the reason exists, as far as it is known. Otherwise, it is the
	// time at which the deployment was queued.
	Since time.Time `json:"since"`
	// Position is the place among the jobs that the pool may claim, 1 for the next one. A concurrency
	// group has one place, that of its first job. Position is 0 if the pool may not claim the deployment
	// yet, or if many others precede it.
	Position int64 `json:"position,omitempty"`
	// Ahead is the number of deployments of the stack that must finish before.
	Ahead    int64     `json:"ahead,omitempty"`
	Blockers []Blocker `json:"blockers,omitempty"`
	Action   Action    `json:"action,omitzero"`
}

// Number returns the number of the reason, or 0 if the log does not report the reason.
func (w Why) Number() int64 { return numbers[w.Reason] }

// Message returns the text with its commands.
func (w Why) Message() string {
	if w.Hint == "" {
		return w.Text
	}
	return w.Text + "\n" + w.Hint
}

// The kinds of a [Blocker].
const (
	BlockerDeployment   = "deployment"
	BlockerPool         = "pool"
	BlockerStack        = "stack"
	BlockerOrganization = "organization"
)

// Blocker is something that must change before a deployment can start.
type Blocker struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
	// Text names the blocker, for example "acme/web/prod #41".
	Text string `json:"text"`
	// Detail says what the blocker does, for example "running on build-3".
	Detail string    `json:"detail,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	// Path is the console's page about the blocker.
	Path string `json:"path"`
}

// The kinds of an [Action].
const (
	Open = "open" // a link to a page
	Post = "post" // a form without fields
)

// Action is the next action of a user. It is empty if the user can only wait.
type Action struct {
	Label string `json:"label"`
	Kind  string `json:"kind"`
	// Path is a path of the console.
	Path string `json:"path"`
}

// Pool is a pool with the state of its agents.
type Pool struct {
	store.AgentPool
	store.Presence
	// Host is the host of the agent that was seen last; "" if the pool has had no agent lately.
	Host string
}

// Queue is what the queue of a stack contributes to an explanation.
type Queue struct {
	store.StackQueue
	// First are the claimed or running jobs of the stack, or otherwise its first queued job.
	First []store.QueueEntry
	// Usual is the usual run time of the first job; 0 if it is unknown.
	Usual time.Duration
}

// ConcurrencyGroup is what a group of stacks contributes to an explanation.
type ConcurrencyGroup struct {
	// Holders are the deployments that hold back those of all other stacks of the group.
	Holders []store.QueueEntry
	// Visible are the holders that the caller can see; nil if the caller is unknown.
	Visible []store.QueueEntry
	// Queued are the first queued jobs of the group, in the order of their requests, without those of paused stacks.
	Queued []store.QueuedJob
}

// Facts are the state of an organization's queues.
type Facts struct {
	Now time.Time
	// URL is the server's URL, for commands.
	URL  string
	Org  store.Organization
	Stop store.OrgQueue
	// Cap bounds the active deployments of the organization.
	Cap, Active int64
	// Patience is the time in which a free agent is expected to claim a job.
	Patience time.Duration
	Pools    map[string]Pool             // by id
	Order    []string                    // ids of the pools, oldest first
	Stacks   map[string]Queue            // by id
	Groups   map[string]ConcurrencyGroup // by name
	// Before is the number of earlier queued jobs of the stack, by the id of a job.
	Before map[string]int64
	// Claimable are the jobs that a pool may claim, by the id of the pool. Of the jobs of a group, it claims one.
	Claimable map[string][]store.QueuedJob
	// Running returns running deployments of a pool that the caller can see, oldest first. The id ""
	// selects all pools. It can be nil.
	Running func(poolID string) []store.QueueEntry
}
