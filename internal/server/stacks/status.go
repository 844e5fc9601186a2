package stacks

import "slices"

// Status is the status of an update, as in the public API.
type Status string

// The statuses of an update.
const (
	NotStarted Status = "not started"
	Running    Status = "running"
	Succeeded  Status = "succeeded"
	Failed     Status = "failed"
	Cancelled  Status = "cancelled"
)

var statusMoves = map[Status][]Status{
	NotStarted: {Running},
	Running:    {Succeeded, Failed, Cancelled},
}

// CanBecome reports whether an update may change from one status to another.
func (s Status) CanBecome(next Status) bool { return slices.Contains(statusMoves[s], next) }

// Finished reports whether an update with this status has ended.
func (s Status) Finished() bool { return s == Succeeded || s == Failed || s == Cancelled }

// Kind is the operation of an update.
type Kind string

// The kinds of update.
const (
	KindUpdate  Kind = "update"
	KindPreview Kind = "preview"
	KindRefresh Kind = "refresh"
	KindDestroy Kind = "destroy"
	KindImport  Kind = "import"
	KindRename  Kind = "rename"
)
