package vcs

// Seen is what the ledger knows about a ref.
type Seen struct {
	// Known is set if the ledger has the ref. Commit is "" if the ref does not exist.
	Known  bool
	Commit string
	// Recorded is set if the commit was only recorded when a stack began to watch the ref: no event
	// has led to it.
	Recorded bool
}

// Compare compares an event about a ref with the ledger. ask is set if only the forge can tell what
// happened; see [Resolve]. Otherwise, reason is "" if the event is to be processed, or the reason to
// ignore it. repeated reports that an event from the same commit to the same commit was processed
// before, so that this one can be a replay, or that it can be forged.
//
// The same rule removes duplicates, merges webhooks and polls, and keeps events that are late or
// replayed from deploying an old commit.
func Compare(seen Seen, e Event, repeated bool) (reason Reason, ask bool) {
	switch {
	case e.Deleted:
		known := !seen.Known || seen.Commit == "" || seen.Commit == e.Before
		return ReasonDeleted, repeated || !known
	case e.After == "":
		return "", true
	case e.Before == e.After:
		return ReasonTest, false
	case seen.Known && e.After == seen.Commit && !seen.Recorded:
		return ReasonDuplicate, false
	case seen.Known && e.After == seen.Commit:
		return "", false // a push at the time at which the stack began to watch
	case seen.Known && e.Before == seen.Commit:
		return "", repeated
	default:
		return "", true
	}
}

// Resolve returns what happened to a ref whose event could not be understood without the forge. head
// is the commit to which the ref points now, or "" if it does not exist. If the reason is not "", the
// event is to be ignored, except that [ReasonDeleted] makes the ledger forget the ref.
func Resolve(seen Seen, e Event, head string) (Event, Reason) {
	switch {
	case head == "":
		e.Deleted, e.After = true, ""
		return e, ReasonDeleted
	case !e.Deleted && e.After == head && (!seen.Known || seen.Commit != head || seen.Recorded):
		return since(seen, e), ""
	case seen.Known && seen.Commit == head:
		return e, ReasonStale
	}
	// The event is superseded: what changed is everything since the last known commit.
	e.Before, e.After, e.Deleted = seen.Commit, head, false
	e.Files, e.Complete, e.Message, e.Unanchored = nil, false, "", false
	return e, ""
}

// Reconcile returns what happened to a ref according to an event; see [Compare] and [Resolve]. head returns
// the commit to which the ref points now, or "" if it does not exist; it is nil if the forge cannot be
// asked.
func Reconcile(seen Seen, e Event, repeated bool, head func() (string, error)) (Event, Reason, error) {
	reason, ask := Compare(seen, e, repeated)
	switch {
	case !ask:
		return e, reason, nil
	case head == nil:
		return since(seen, e), reason, nil
	}
	now, err := head()
	if err != nil {
		return e, "", err
	}
	e, reason = Resolve(seen, e, now)
	return e, reason, nil
}

// since returns an event as the change since the commit in the ledger. An event that begins at another
// commit does not say all that changed: reports between them were lost, or come later. Its own files
// then say nothing about whether the change matters to a stack.
func since(seen Seen, e Event) Event {
	if !seen.Known || seen.Recorded && e.After == seen.Commit || e.Before == seen.Commit || e.Unanchored {
		return e
	}
	e.Before, e.Files, e.Complete = seen.Commit, nil, false
	return e
}
