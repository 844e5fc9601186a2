package states

import (
	"slices"
	"time"

	"workflowagent/internal/server/store"
)

const (
	// foldQueue is the maximum number of an organization's journals that wait to be folded. The
	// sweep finds the others.
	foldQueue = 256
	// foldRetry is the time for which a journal that cannot be folded is skipped.
	foldRetry = time.Hour
)

// queue contains the journals that wait to be folded. Only one goroutine uses it.
type queue struct {
	orgs    []string            // organizations with waiting journals; the first one is next
	waiting map[string][]string // keys by organization
}

// add adds a journal unless it waits already, or too many of its organization do.
func (q *queue) add(j store.OwnedState) {
	keys := q.waiting[j.OrgID]
	if len(keys) >= foldQueue || slices.Contains(keys, j.Key) {
		return
	}
	if len(keys) == 0 {
		q.orgs = append(q.orgs, j.OrgID)
	}
	q.waiting[j.OrgID] = append(keys, j.Key)
}

func (q *queue) empty() bool { return len(q.orgs) == 0 }

// next removes and returns a journal of a queue that is not empty. It serves the organizations in
// turn.
func (q *queue) next() (key string) {
	org := q.orgs[0]
	q.orgs = q.orgs[1:]
	keys := q.waiting[org]
	if len(keys) > 1 {
		q.waiting[org] = keys[1:]
		q.orgs = append(q.orgs, org)
	} else {
		delete(q.waiting, org)
	}
	return keys[0]
}

// failures contains, by key, the times at which journals could not be folded.
type failures map[string]time.Time

// recent reports whether a journal is to be skipped.
func (f failures) recent(key string) bool {
	at, ok := f[key]
	if ok && time.Since(at) >= foldRetry {
		delete(f, key)
		return false
	}
	return ok
}

// tidy removes old failures, whose journals might no longer exist.
func (f failures) tidy() {
	for key := range f {
		f.recent(key)
	}
}
