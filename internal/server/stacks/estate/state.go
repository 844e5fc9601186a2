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

// Of returns the state of a stack: the first that holds. A lock is a running update; a failed preview marks its run
// only. The rank of the store selects and sorts by the same conditions.
func Of(e store.Estate) State {
	switch {
	case e.HeldBy != "" || e.Active > 0:
		return Running
	case e.LastResult == store.RunFailed || e.LastResult == store.RunCancelled:
		return Failed
	case e.Drift == store.DriftFound:
		return Drift
	case e.Queued > 0:
		return Queued
	case e.Paused:
		return Paused
	case e.LastKind != "":
		return Declared
	default:
		return Never
	}
}
