package identity

import (
	"context"
	"sync"
	"time"

	"workflowagent/internal/server/store"
)

// runnerAge is the time for which the principal of a runner's token remains valid. Such a token
// cannot be revoked: it expires a day after its job's end, and each call also checks the job. The
// principal of a pool's token remains valid for as long, but only for calls that check the token
// again.
const runnerAge = 20 * time.Second

// runners remembers the principals of runners, because each runner delivers log several times per
// second, and of pools, whose agents all poll with the same token.
type runners struct {
	mu     sync.Mutex
	byHash map[string]knownRunner
	swept  time.Time
}

type knownRunner struct {
	*Principal
	until time.Time
}

// AuthenticatePoll is like [Service.AuthenticateMachine], but for the token of a pool, the answer can
// be up to runnerAge old. The caller must check the token again with [CheckPoll].
func (s *Service) AuthenticatePoll(ctx context.Context, text string) (*Principal, error) {
	if p, ok := s.runners.get(HashToken(text)); ok {
		return p, nil
	}
	return s.AuthenticateMachine(ctx, text)
}

// RememberRunner makes the principal of the new token of a runner known. org is the token's
// organization.
func (s *Service) RememberRunner(t store.Token, org store.Organization) {
	if p, ok := principal(store.Credential{Token: t, Org: org}); ok && p.Kind == KindRunner {
		s.runners.add(t.Hash, &p, time.Now())
	}
}

func (r *runners) get(hash []byte) (*Principal, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.byHash[string(hash)]
	return known.Principal, ok && time.Now().Before(known.until)
}

// add remembers the principal of a token that was read at a time.
func (r *runners) add(hash []byte, p *Principal, read time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.swept) > runnerAge {
		r.swept = time.Now()
		for h, known := range r.byHash {
			if r.swept.After(known.until) {
				delete(r.byHash, h)
			}
		}
	}
	if r.byHash == nil {
		r.byHash = map[string]knownRunner{}
	}
	r.byHash[string(hash)] = knownRunner{p, read.Add(runnerAge)}
}
