package changes

import (
	"time"
)

// Bounds of a [Reducer]. Rows beyond the bound are only counted.
const (
	MaxRows     = 60_000
	maxText     = 400
	maxKeys     = 20
	maxKey      = 120
	maxMessages = 500
	maxMessage  = 4 << 10
	maxURN      = 2 << 10
)

// State is the progress of an operation on a resource.
type State string

// The states of a resource.
const (
	Planned State = "planned" // the operation has not begun; previews only plan
	Running State = "running"
	Done    State = "done"
	Failed  State = "failed"
)

// Row is one resource of an update.
type Row struct {
	URN, Type, Name, Parent string
	// Op is the operation: same, create, update, delete, replace, read, refresh, import and others
	// that the engine defines. It is "" for a resource of which only messages are known.
	Op    string
	State State
	// Errors and Warnings count the messages about the resource; Message is the last one.
	Errors, Warnings int
	Message          string
	// Began and Took are the times of the operation, to the second, because events have no finer
	// times. Took is 0 until the operation ends.
	Began time.Time
	Took  time.Duration
	// ReplaceKeys are the properties that caused a replacement.
	ReplaceKeys []string
	// Diff lists the changed properties; More is the number of those that are not listed.
	Diff []Property
	More int
	// Policies counts the policy violations.
	Policies int
}

// Property is a changed property of a resource.
type Property struct {
	Path string
	// Kind is add, delete or update, with the suffix -replace if the change replaces the resource.
	Kind string
}

// Changed reports whether an operation changes the resource, or failed to.
func (r Row) Changed() bool {
	return r.State == Failed || r.Errors > 0 || r.Policies > 0 || r.Op != "same" && r.Op != "" && r.Op != "refresh"
}

// Dangerous reports whether the operation failed, or removes what exists.
func (r Row) Dangerous() bool {
	return r.State == Failed || r.Errors > 0 || r.Removes()
}

// Removes reports whether the operation removes what exists.
func (r Row) Removes() bool { return r.Op == "delete" || r.Op == "replace" || r.Op == "discard" }

// Message is a diagnostic or a policy violation.
type Message struct {
	Sequence int64
	URN      string
	// Severity is error, warning, info, info#err or policy.
	Severity, Text string
}

// Tree is the state of an update's resources.
type Tree struct {
	// Rows are ordered by their first event.
	Rows []Row
	// Totals count resources by operation.
	Totals map[string]int
	// Running, Finished and Failures count rows by state.
	Running, Finished, Failures int
	// Omitted counts resources beyond the bound.
	Omitted int
	// Messages are the first diagnostics; OmittedMessages counts the others.
	Messages        []Message
	OmittedMessages int
	// Progress describes downloads and installations that run.
	Progress []string
	// Changes are the counts of the engine's summary, if it was received.
	Changes             map[string]int
	Summarized          bool
	Cancelled           bool
	Began, LastActivity time.Time
}
