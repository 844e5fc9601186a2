package vcs

import (
	"errors"
	"maps"
	"slices"
)

// Reason is why an event caused a deployment, or why it did not. Its value is stable.
type Reason string

// The reasons. Each has a text in reasonTexts.
const (
	ReasonPushed        Reason = "pushed"
	ReasonTagged        Reason = "tagged"
	ReasonPull          Reason = "pull-request"
	ReasonPublished     Reason = "ready-for-review"
	ReasonRerun         Reason = "rerun"
	ReasonTriggerOff    Reason = "trigger-off"
	ReasonOtherBranch   Reason = "other-branch"
	ReasonNoPath        Reason = "no-path-matched"
	ReasonExcluded      Reason = "paths-excluded"
	ReasonEmpty         Reason = "no-files-changed"
	ReasonTagFilter     Reason = "tag-filtered"
	ReasonManyTags      Reason = "too-many-tags"
	ReasonLabel         Reason = "label-missing"
	ReasonDraft         Reason = "draft"
	ReasonFork          Reason = "fork-needs-approval"
	ReasonForkOff       Reason = "fork-not-allowed"
	ReasonNoBranch      Reason = "head-is-no-branch"
	ReasonUnconfirmed   Reason = "branch-not-confirmed"
	ReasonBot           Reason = "bot-needs-approval"
	ReasonUnchanged     Reason = "commit-unchanged"
	ReasonClosed        Reason = "pull-request-closed"
	ReasonSuperseded    Reason = "superseded"
	ReasonDuplicate     Reason = "duplicate"
	ReasonStale         Reason = "stale"
	ReasonTest          Reason = "test-delivery"
	ReasonDeleted       Reason = "ref-deleted"
	ReasonRecorded      Reason = "head-recorded"
	ReasonSkipCI        Reason = "skip-ci"
	ReasonUnwatched     Reason = "no-stack-watches"
	ReasonUnknownRepo   Reason = "unknown-repository"
	ReasonMissing       Reason = "not-found"
	ReasonOtherRepo     Reason = "repository-replaced"
	ReasonUnauthorized  Reason = "sender-may-not-write"
	ReasonUnsupported   Reason = "event-not-supported"
	ReasonMergeAttempt  Reason = "merge-attempt"
	ReasonMergeGroup    Reason = "merge-group"
	ReasonComment       Reason = "comment"
	ReasonOtherTemplate Reason = "other-template"
	ReasonRefused       Reason = "deployment-refused"
	ReasonWaiting       Reason = "forge-unreachable"
	ReasonNoAccess      Reason = "forge-refuses-access"
	ReasonLimited       Reason = "forge-limit"
	ReasonRejected      Reason = "request-rejected"
	ReasonFailed        Reason = "internal-error"
)

// reasonTexts explains each reason to the owner of a stack.
var reasonTexts = map[Reason]string{
	ReasonPushed:        "A commit was pushed to the stack's branch.",
	ReasonTagged:        "A tag was pushed that matches the stack's tag filters.",
	ReasonPull:          "A pull request against the stack's branch has a new commit.",
	ReasonPublished:     "A draft pull request was published.",
	ReasonRerun:         "An account with write access requested another run.",
	ReasonTriggerOff:    "The stack's settings do not enable this trigger.",
	ReasonOtherBranch:   "The event is about a branch or pull request that the stack does not watch.",
	ReasonNoPath:        "No changed file matches the stack's path filters.",
	ReasonExcluded:      "The stack's path filters exclude all changed files.",
	ReasonEmpty:         "The commits change no files, and the stack has path filters.",
	ReasonTagFilter:     "The tag does not match the stack's tag filters.",
	ReasonManyTags:      "More than 3 new tags were found at once; none of them is deployed.",
	ReasonLabel:         "The pull request has none of the labels that the template requires.",
	ReasonDraft:         "The pull request is a draft.",
	ReasonFork:          "The pull request comes from a fork; a member must approve this commit.",
	ReasonForkOff:       "The pull request comes from a fork, which the integration does not allow.",
	ReasonNoBranch:      "The head of the pull request is no branch of the repository, so that it counts as one from a fork.",
	ReasonUnconfirmed:   "The forge did not confirm that the pull request's branch has this commit, so that it counts as one from a fork.",
	ReasonBot:           "The pull request comes from a bot; a member must approve this commit.",
	ReasonUnchanged:     "The stack already has a deployment of this commit of the pull request.",
	ReasonClosed:        "The pull request is closed.",
	ReasonSuperseded:    "A newer commit replaced this one before it was deployed.",
	ReasonDuplicate:     "The server already knew this event.",
	ReasonStale:         "The ref already points to a newer commit.",
	ReasonTest:          "The forge sent a test delivery, which changes nothing.",
	ReasonDeleted:       "The branch or tag was deleted.",
	ReasonRecorded:      "The server saw the ref for the first time and recorded its commit.",
	ReasonSkipCI:        "The message of the head commit requests that CI is skipped.",
	ReasonUnwatched:     "No stack watches this repository.",
	ReasonUnknownRepo:   "The integration has no such repository.",
	ReasonMissing:       "The forge has no such repository, ref or pull request, or hides it from the integration.",
	ReasonOtherRepo:     "Another repository now has the name of the one that the stack watches.",
	ReasonUnauthorized:  "The account that requested this may not write to the repository.",
	ReasonUnsupported:   "The server does not use this kind of event.",
	ReasonMergeAttempt:  "The forge tried to merge the pull request, which is still open.",
	ReasonMergeGroup:    "A merge queue requests a check; commits of merge queues are not deployed.",
	ReasonComment:       "Comments are never commands.",
	ReasonOtherTemplate: "Another template of the same project creates the review stack.",
	ReasonRefused:       "The deployment could not be created.",
	ReasonWaiting:       "The forge could not be reached, or did not answer as documented; the event is processed later.",
	ReasonNoAccess:      "The forge refuses the integration's credential or a permission, or its app is not installed; the event is processed later.",
	ReasonLimited:       "The forge accepts no more requests for now; the event is processed later.",
	ReasonRejected:      "The forge rejects the server's request about the event.",
	ReasonFailed:        "An internal error occurred; the server's log describes it.",
}

// Text explains the reason to the owner of a stack, in one sentence.
func (r Reason) Text() string {
	return reasonTexts[r]
}

// ReasonOf returns the reason that the error of a forge keeps an event from being processed. final is
// set if no other attempt can succeed. Missing objects and rejected requests are not final at once,
// because some forges show new objects late.
func ReasonOf(err error) (reason Reason, final bool) {
	_, limited := errors.AsType[*RateLimited](err)
	switch {
	case limited:
		return ReasonLimited, false
	case errors.Is(err, ErrForeign):
		return ReasonUnknownRepo, true
	case errors.Is(err, ErrNotFound):
		return ReasonMissing, errors.Is(err, ErrGone)
	case errors.Is(err, ErrRejected):
		return ReasonRejected, false
	case errors.Is(err, ErrRefused), errors.Is(err, ErrNotInstalled):
		return ReasonNoAccess, false
	default:
		return ReasonWaiting, false
	}
}

// Holds reports whether the reason keeps a pull request from running until something changes: until
// then, a review stack stays as it is.
func (r Reason) Holds() bool {
	return slices.Contains([]Reason{ReasonFork, ReasonForkOff, ReasonNoBranch, ReasonUnconfirmed, ReasonBot, ReasonDraft, ReasonSkipCI}, r)
}

// AwaitsApproval reports whether the decision is that a member must approve the commit.
func (d Decision) AwaitsApproval() bool {
	return d.Detail != "" && slices.Contains([]Reason{ReasonFork, ReasonNoBranch, ReasonUnconfirmed, ReasonBot}, d.Reason)
}

// Reasons returns all reasons, in the order of their names.
func Reasons() []Reason { return slices.Sorted(maps.Keys(reasonTexts)) }
