// Package estate lists the stacks of an organization with their states. What it reads is kept in step with the runs in
// their own transactions; see [store.Estate].
package estate

import "workflowagent/internal/server/store"

// State is what a stack's last run that writes, its queue and its newest detection of drift make of it.
type State string

// The states.
const (
	Running  State = "running"
	Failed   State = "failed"
	Drift    State = "drift"
	Queued   State = "queued"
	Paused   State = "paused"
	Declared State = "declared"
	Never    State = "never"
)

// States are all states, those that need attention first.
var States = []State{
	store.RankFailed: Failed, store.RankDrift: Drift, store.RankRunning: Running, store.RankQueued: Queued,
	store.RankPaused: Paused, store.RankDeclared: Declared, store.RankNever: Never,
}

var words = map[State]string{Drift: "drift found", Declared: "as declared", Never: "never updated"}

// Words returns the state in words.
func (s State) Words() string {
	if text, ok := words[s]; ok {
		return text
	}
	return string(s)
}

// Of returns the state of a stack. The store derives it from the facts about the stack whenever one of them changes,
// because it selects and sorts by it.
func Of(e store.Estate) State { return stateOf(e.Rank) }

// stateOf returns the state of a rank. A later version of the server can have stored a rank that this one does not know.
func stateOf(rank store.EstateRank) State {
	if rank < 0 || int(rank) >= len(States) {
		return Never
	}
	return States[rank]
}
