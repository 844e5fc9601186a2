package rest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"workflowagent/internal/server/vcs"
)

// Updates collects the pull requests of a list that begins with the latest update.
type Updates struct {
	since  time.Time
	latest time.Time
	pulls  []vcs.Pull
	cut    bool // there are others
}

// maxUpdates is the number of pull requests of a list: as many as [Pages] reads of forges that send 100 at
// once. A forge can send more than were requested.
const maxUpdates = 100 * maxPages

// NewUpdates returns a collection of what was updated since a cursor, which is the time of the
// latest update in RFC 3339 format.
func NewUpdates(since vcs.Cursor) *Updates {
	at, err := time.Parse(time.RFC3339Nano, string(since))
	if err != nil {
		at = time.Time{}
	}
	return &Updates{since: at, latest: at}
}

// IsOld reports whether a pull request with an update at a time, and all following ones, are older
// than the cursor.
func (u *Updates) IsOld(updated time.Time) bool { return updated.Before(u.since) }

// Add adds a pull request. It returns false if this and all following ones are older than the
// cursor, or too many. Those of the cursor's own time are returned again, because others can have that time too.
func (u *Updates) Add(p vcs.Pull) bool {
	if u.IsOld(p.UpdatedAt) {
		return false
	}
	if u.cut = len(u.pulls) >= maxUpdates; u.cut {
		return false
	}
	if p.UpdatedAt.After(u.latest) {
		u.latest = p.UpdatedAt
	}
	u.pulls = append(u.pulls, p)
	return true
}

// AddPage adds the pull requests of a page, in the form of a forge. It returns false if the following
// pages are older than the cursor. Those that normal does not find have no commit, for example, and do
// not hide the others.
func AddPage[T any](u *Updates, page []*T, normal func(*T) (vcs.Pull, error)) (more bool, err error) {
	for _, item := range page {
		if item == nil {
			continue
		}
		p, err := normal(item)
		if errors.Is(err, vcs.ErrNotFound) {
			continue
		}
		if err != nil || !u.Add(p) {
			return false, err
		}
	}
	return true, nil
}

// Result returns the pull requests, the one with the oldest update first, and the next cursor. The
// cursor of a list without any is not zero, so that the next list contains closed ones too. read is
// the error of reading the list; a list that is too long is [vcs.ErrPartial].
func (u *Updates) Result(read error) ([]vcs.Pull, vcs.Cursor, error) {
	if errors.Is(read, ErrManyPages) || read == nil && u.cut {
		read = vcs.ErrPartial
	}
	if read != nil && !errors.Is(read, vcs.ErrPartial) {
		return nil, "", fmt.Errorf("listing pull requests: %w", read)
	}
	slices.SortStableFunc(u.pulls, func(a, b vcs.Pull) int { return a.UpdatedAt.Compare(b.UpdatedAt) })
	latest := u.latest
	if latest.IsZero() {
		latest = time.Unix(0, 0)
	}
	return u.pulls, vcs.Cursor(latest.UTC().Format(time.RFC3339Nano)), read
}
