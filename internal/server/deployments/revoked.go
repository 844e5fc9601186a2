package deployments

import (
	"context"
	"sync"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// wakers lets held polls check their token when one of the organization's may
// have ended.
type wakers struct {
	mu    sync.Mutex
	polls map[chan struct{}]string // organization
}

// join returns a channel that receives when a poll has to check its token,
// which is at once for the first time: the token may have ended since the
// request was let in.
func (w *wakers) join(orgID string) (wake <-chan struct{}, leave func()) {
	c := make(chan struct{}, 1)
	c <- struct{}{}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.polls[c] = orgID
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.polls, c)
	}
}

// note wakes the polls of an organization, or all if notes may have been
// missed; it is what the store calls.
func (w *wakers) note(orgID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c, org := range w.polls {
		if orgID != "" && org != orgID {
			continue
		}
		select {
		case c <- struct{}{}:
		default: // it has not looked since the last note
		}
	}
}

// revoked returns the answer to a poll whose token has ended, nil if it has
// not. While the database cannot be asked it has not: a claim asks again.
func (s *Service) revoked(ctx context.Context, tokenID string) error {
	err := s.db.Read(ctx, func(tx *store.Tx) error { return identity.CheckLive(tx, tokenID, tx.Now()) })
	if fault.KindOf(err) == fault.KindUnauthenticated {
		return err
	}
	return nil
}
