package stacks

import "slices"

// Status is an update's status in the public API.
type Status string

// The update statuses.
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

// CanBecome reports whether an update can change from status s to next.
func (s Status) CanBecome(next Status) bool { return slices.Contains(statusMoves[s], next) }

// Finished reports whether an update with this status has finished.
func (s Status) Finished() bool { return s == Succeeded || s == Failed || s == Cancelled }

// Kind is the operation of an update.
type Kind string

// The update kinds.
const (
	KindUpdate  Kind = "update"
	KindPreview Kind = "preview"
	KindRefresh Kind = "refresh"
	KindDestroy Kind = "destroy"
	KindImport  Kind = "import"
	KindRename  Kind = "rename"
)
